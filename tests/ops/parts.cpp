// Mode parts: cuts inputs in every way allowed by an operation's rule (program/place.h). The
// reference on the parts gives parts of the whole result, or addends of it.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ops/fp8.h"
#include "ops/harness.h"
#include "part_of.h"
#include "program/place.h"

namespace crest::test {

namespace {

// After this many comparisons of an operation, larger cases are left out.
constexpr int enough = 4;
constexpr int64_t small = 2048;
using Kind = Placement::Kind;

// Whether heads are shared out, and the relevant attributes.
bool cuts_heads(const Case& c, const std::vector<Placement>& in) {
  for (size_t i = 0; i < in.size(); ++i) {
    const int dim = c.op == "matmul" ? 1 : c.op == "split_heads" || c.op.starts_with("attention_rows") ? 2 : -1;
    if (in[i].cut() && (in[i].queries > 0 || in[i].dim == dim)) return true;
  }
  return false;
}
constexpr const char* counts_of_heads[] = {"heads", "kv_heads", "reduce"};

// Operations with a vocabulary that ranks may share, according to attribute `axes`.
const std::set<std::string> of_vocabulary = {"embedding", "embedding_grad", "loss_stats", "cross_entropy_grad"};

// Rank r's part of the inputs.
struct Part {
  Case c;
  Values values;
};
Part part(const Case& whole, const Values& values, const std::vector<Placement>& in, int r, int ranks) {
  Part p{whole, values};
  if (whole.attrs.has("axes") && of_vocabulary.count(whole.op)) {
    p.c.rank = r, p.c.ranks = ranks;
    if (whole.op == "embedding_grad") p.c.attrs.set("rows", whole.attrs.integer("rows") / ranks);
  }
  bool samples = false;
  for (const char* heads : counts_of_heads)
    if (cuts_heads(whole, in) && whole.attrs.has(heads)) p.c.attrs.set(heads, whole.attrs.integer(heads) / ranks);
  for (size_t i = 0; i < in.size(); ++i) {
    Arg& arg = p.c.in[i];
    if (arg.fill == Arg::Fill::absent || in[i].replicated()) continue;
    if (in[i].kind == Kind::partial) {
      for (double& x : p.values[i]) x *= 2.0 * (r + 1) / (ranks * (ranks + 1));
      continue;
    }
    p.values[i] = part_of(values[i], arg.shape, in[i], r, ranks);
    arg.shape[in[i].dim] /= ranks;
    if (arg.strides.rank()) arg.strides = arg.shape.contiguous_strides(), arg.offset = 0;
    // Dropout counts samples of the whole batch.
    if (!samples && in[i].dim == 0) p.c.scalars.sample_base += uint64_t(r * arg.shape[0]), samples = true;
  }
  p.c.complete = nullptr;
  const Values own = make_values(p.c);
  for (size_t i = 0; i < in.size(); ++i)
    if (p.c.in[i].fill == Arg::Fill::scalars) p.values[i] = own[i];
  return p;
}

// Squares have a scale for 128 rows, and so has a row of the transpose.
bool blocks_of_rows(const Case& c) {
  return c.attrs.has("blocks") &&
         (c.attrs.text("blocks") == "128x128" || c.attrs.integer("columns", 0) != 0 || c.op.ends_with("_columns"));
}

bool divisible(const Case& c, const std::vector<Placement>& in, int ranks) {
  if (c.op == "embedding_grad" && c.attrs.has("axes") && c.attrs.integer("rows") % ranks) return false;
  for (const char* heads : counts_of_heads)
    if (cuts_heads(c, in) && c.attrs.has(heads) && c.attrs.integer(heads) % ranks) return false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].kind != Kind::shard || c.in[i].fill == Arg::Fill::absent) continue;
    int64_t n = c.in[i].shape[in[i].dim];
    // Blocks of one scale stay whole.
    if (n % ranks || (c.attrs.has("block") && n > c.attrs.integer("block") && n / ranks % c.attrs.integer("block")))
      return false;
    if (blocks_of_rows(c) && (in[i].dim > 0 || n / ranks % fp8_block)) return false;
  }
  return true;
}

int64_t elements(const Case& c) {
  int64_t sum = 0;
  for (const Arg& a : c.in) sum += a.fill == Arg::Fill::absent ? 0 : a.shape.numel();
  return sum;
}

// Whether a part was quantized with another scale than the whole.
bool other_scale(const Instr& instr, const Values& part, const Values& whole) {
  for (size_t o = 0; o < whole.size(); ++o)
    if (operand_name(instr.op->outputs, o) == "scale" && part[o].size() == 1 && part[o] != whole[o]) return true;
  return false;
}

// Operations with row counts or row positions in attributes or other operands.
bool counts_rows(const Case& c) {
  static const std::set<std::string> ops = {"split_rows", "join_rows"};
  const bool rounds_by_place = c.op.starts_with("adamw") && c.attrs.has("rng_id");
  return ops.count(c.op) > 0 || rounds_by_place || (c.attrs.has("blocks") && c.op == "linear_fp8");
}

void compare(const Case& c, Axis axis, const std::vector<Placement>& in, int ranks) {
  const Single single(c);
  std::vector<Placement> out;
  ASSERT_EQ(place(single.program, single.instr(), axis, in, out), "");
  const Values values = make_values(c), whole = reference_outputs(c, values);
  std::vector<Values> parts;
  for (int r = 0; r < ranks; ++r) {
    Part p = part(c, values, in, r, ranks);
    parts.push_back(reference_outputs(p.c, p.values));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    const Shape& shape = single.program.at(single.instr().out[o]).shape;
    for (int r = 0; r < ranks; ++r) {
      if (other_scale(single.instr(), parts[size_t(r)], whole)) continue;
      // Transposes are padded to whole blocks of rows.
      if (c.op.find("quantize") != std::string::npos && parts[size_t(r)][o].size() * size_t(ranks) != whole[o].size())
        continue;
      if (out[o].kind == Kind::shard) {
        ASSERT_EQ(shape[out[o].dim] % ranks, 0);
        EXPECT_LT(relative_error(parts[size_t(r)][o], part_of(whole[o], shape, out[o], r, ranks)), 1e-12)
            << "output " << o;
      }
      if (out[o].kind == Kind::replicated) {
        EXPECT_LT(relative_error(parts[size_t(r)][o], whole[o]), 1e-12) << "output " << o;
      }
    }
    if (out[o].kind != Kind::partial) continue;
    std::vector<double> sum = parts[0][o];
    for (size_t k = 0; k < sum.size(); ++k)
      for (size_t r = 1; r < parts.size(); ++r) sum[k] += parts[r][o][k];
    EXPECT_LT(relative_error(sum, whole[o]), 1e-12) << "output " << o;
  }
}

}  // namespace

TEST(Parts, OfEveryCaseGiveTheWhole) {
  std::map<std::string, int> compared;
  std::set<std::string> cut;
  for (const Case& stored : all_cases()) {
    if (stored.name.ends_with("_bf16") || stored.name.ends_with("_f16") || stored.ranks > 1) continue;
    Case c = in_double(stored);
    for (bool vocabulary : {false, true}) {
      if (vocabulary && (of_vocabulary.count(c.op) == 0 || c.attrs.has("p"))) continue;
      if (vocabulary) c.attrs.set("axes", "tensor");
      const Single single(c);
      if (!single.instr().op->place || counts_rows(c)) continue;
      const std::string kind = c.op + (blocks_of_rows(c) ? " of blocks of rows"
                                       : vocabulary      ? " of the vocabulary"
                                                         : "");
      const Axis axis = vocabulary ? Axis::tensor : Axis::data;
      for (const auto& in : cuts_of(single.program, single.instr(), axis)) {
        cut.insert(kind);
        int ranks = 0;
        for (int n : {2, 3, 5, 7})
          if (ranks == 0 && divisible(c, in, n)) ranks = n;
        if (ranks == 0 || (compared[kind] >= enough && elements(c) > small)) continue;
        std::string how;
        for (size_t i = 0; i < in.size(); ++i) how += " " + text(in[i]);
        SCOPED_TRACE(kind + " " + c.name + ":" + how);
        compare(c, axis, in, ranks);
        if (HasFatalFailure()) return;
        ++compared[kind];
      }
    }
  }
  for (const std::string& op : of_vocabulary) EXPECT_GT(compared[op + " of the vocabulary"], 0) << op;
  for (const std::string& op : cut) EXPECT_GT(compared[op], 0) << op;
  EXPECT_GT(cut.size(), 50u);
}

// Each rank has a part of the vocabulary. Together they give the loss of each row.
TEST(Parts, OfTheVocabularyGiveTheLoss) {
  for (const Case& c : all_cases()) {
    if (c.op != "cross_entropy" || !c.name.ends_with("_f32") || c.attrs.has("axes")) continue;
    const Case whole = in_double(c);
    const Shape& logits = c.in[0].shape;
    const int ranks = logits.back() % 3 == 0 ? 3 : 2;
    if (logits.back() % ranks || elements(c) > 1 << 17) continue;
    SCOPED_TRACE(c.name);
    const Values values = make_values(whole), expected = reference_outputs(whole, values);
    const Attrs own = Attrs(c.attrs).set("axes", "tensor");
    Case stats{"loss_stats", "stats", {whole.in[0], whole.in[1]}, own};
    stats.in[0] = {Arg::Fill::normal, DType::f64, logits.with_back(logits.back() / ranks)};
    stats.ranks = ranks;
    Values all = {values[0], values[1], {}, {}};
    for (int r = 0; r < ranks; ++r) {
      stats.rank = r;
      const Placement shard = Placement::shard(logits.rank() - 1);
      const auto part = reference_outputs(stats, {part_of(values[0], logits, shard, r, ranks), values[1]})[0];
      all[3].insert(all[3].end(), part.begin(), part.end());
    }
    Case combined{"cross_entropy", "combined", {whole.in[0], whole.in[1], absent()}, own, nullptr, c.scalars};
    if (whole.in.size() > 2) combined.in[2] = whole.in[2], all[2] = values[2];
    combined.in.push_back(tensor(DType::f64, {ranks, logits.rows(), 3}));
    const Values out = reference_outputs(combined, all);
    for (size_t o = 0; o < out.size(); ++o) EXPECT_LT(relative_error(out[o], expected[o]), 1e-12);
  }
}

}  // namespace crest::test
