// Mode parts: wherever an operation's rule (program/place.h) lets its inputs be cut, its references
// on the parts give parts of the whole result, or addends of it.
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
    const int dim = c.op == "matmul" ? 1 : c.op == "split_heads" ? 2 : -1;
    if (in[i].cut() && (in[i].queries > 0 || in[i].dim == dim)) return true;
  }
  return false;
}
constexpr const char* counts_of_heads[] = {"heads", "kv_heads", "reduce"};

// Rank r's part of the inputs.
struct Part {
  Case c;
  Values values;
};
Part part(const Case& whole, const Values& values, const std::vector<Placement>& in, int r, int ranks) {
  Part p{whole, values};
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

// Operations with the number or place of rows in attributes or other operands.
bool counts_rows(const Case& c) {
  static const std::set<std::string> ops = {"split_rows", "join_rows"};
  const bool rounds_by_place = c.op.starts_with("adamw") && c.attrs.has("rng_id");
  return ops.count(c.op) > 0 || rounds_by_place || (c.attrs.has("blocks") && c.op == "linear_fp8");
}

void compare(const Case& c, const std::vector<Placement>& in, int ranks) {
  const Single single(c);
  std::vector<Placement> out;
  ASSERT_EQ(place(single.program, single.instr(), in, out), "");
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
    if (stored.name.ends_with("_bf16") || stored.name.ends_with("_f16")) continue;
    const Case c = in_double(stored);
    const Single single(c);
    if (!single.instr().op->place || counts_rows(c)) continue;
    const std::string kind = c.op + (blocks_of_rows(c) ? " of blocks of rows" : "");
    for (const auto& in : cuts_of(single.program, single.instr())) {
      cut.insert(kind);
      int ranks = 0;
      for (int n : {2, 3, 5, 7})
        if (ranks == 0 && divisible(c, in, n)) ranks = n;
      if (ranks == 0 || (compared[kind] >= enough && elements(c) > small)) continue;
      std::string how;
      for (size_t i = 0; i < in.size(); ++i) how += " " + text(in[i]);
      SCOPED_TRACE(c.op + " " + c.name + ":" + how);
      compare(c, in, ranks);
      if (HasFatalFailure()) return;
      ++compared[kind];
    }
  }
  for (const std::string& op : cut) EXPECT_GT(compared[op], 0) << op;
  EXPECT_GT(cut.size(), 50u);
}

}  // namespace crest::test
