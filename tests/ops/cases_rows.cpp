// Attention of the queries of one of several ranks with the tokens of a sequence: chunks that begin
// on and between the borders of tiles, the first and the last chunks, documents and windows that
// begin in other chunks, groups, dropout, narrow and wide heads.
#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"
#include "program/builder.h"

namespace crest::test {

namespace {

struct Rows {
  std::string name;
  int rank, ranks;
  int64_t batch, chunk, heads, kv_heads, dim;
  int64_t window = 0, document = 0;  // tokens; 0: none
  double p = 0;
  bool tf32 = false;
};

void add_rows(std::vector<Case>& list, DType t, const Rows& r) {
  Attrs attrs = Attrs().set("heads", r.heads).set("kv_heads", r.kv_heads).set("ranks", r.ranks);
  attrs.set("scale", 1 / std::sqrt(double(r.dim)));
  if (r.ranks > 1) attrs.set("axes", "context");
  if (r.window) attrs.set("window", r.window);
  if (r.p > 0) attrs.set("p", r.p).set("rng_id", 9);
  if (r.tf32) attrs.set("tf32", 1);
  const Shape tokens = {r.batch, 2 * r.chunk};
  const Arg q = tensor(t, {r.batch, 2 * r.chunk, r.heads * r.dim}),
            lse = tensor(DType::f32, {r.batch, r.heads, 2 * r.chunk});
  const Arg kv = tensor(t, {r.batch, 2 * r.chunk * r.ranks, 2, r.kv_heads * r.dim});
  const Arg scalars = r.p > 0 ? scalars_arg() : absent();
  const Arg documents = r.document ? positions(tokens, r.document) : absent();
  const std::string name = r.name + "_" + std::string(crest::name(t));
  const Case forward = {
      "attention_rows", name,   {q, kv, scalars, documents}, attrs, nullptr, some_scalars(), nullptr, {},
      r.rank,           r.ranks};
  list.push_back(forward);
  auto complete = [forward](Values& v) {
    Values out = reference_outputs(in_double(forward), {v[1], v[2], v[5], v[6]});
    v[3] = out[0], v[4] = out[1];
  };
  list.push_back({"attention_rows_grad",
                  name,
                  {q, q, kv, q, lse, scalars, documents},
                  attrs,
                  nullptr,
                  some_scalars(),
                  complete,
                  {},
                  r.rank,
                  r.ranks});
}

void add_cases(std::vector<Case>& list, DType t) {
  for (int rank : {0, 1}) {
    const std::string of = "rank" + std::to_string(rank);
    add_rows(list, t, {of + "_odd_chunks", rank, 2, 2, 33, 2, 2, 64});
    add_rows(list, t, {of + "_tiles", rank, 2, 1, 64, 4, 2, 32});
    add_rows(list, t, {of + "_across_tiles", rank, 2, 1, 97, 2, 1, 64});
    add_rows(list, t, {of + "_window", rank, 2, 2, 70, 2, 1, 64, 50});
    add_rows(list, t, {of + "_documents", rank, 2, 2, 65, 1, 1, 128, 0, 40});
    add_rows(list, t, {of + "_dropout", rank, 2, 2, 34, 4, 2, 64, 0, 0, 0.3});
  }
  for (int rank : {1, 2, 3}) {
    const std::string of = "rank" + std::to_string(rank) + "_of_4";
    add_rows(list, t, {of, rank, 4, 1, 40, 2, 1, 64});
    add_rows(list, t, {of + "_all", rank, 4, 2, 17, 4, 2, 33, 30, 25, 0.2});
  }
  add_rows(list, t, {"large_tiles", 1, 2, 1, 128, 2, 1, 64, 0, 90});
  add_rows(list, t, {"large_chunks", 0, 2, 1, 128, 1, 1, 128});
  add_rows(list, t, {"one_token", 1, 2, 3, 1, 2, 1, 32});
  add_rows(list, t, {"wide", 1, 2, 1, 20, 2, 1, 136, 0, 0, 0.2});
  add_rows(list, t, {"width_256", 1, 2, 1, 66, 1, 1, 256, 40});
  add_rows(list, t, {"one_rank", 0, 1, 2, 65, 2, 1, 64, 0, 30});
  if (t == DType::f32)
    for (int rank : {0, 1}) {
      const std::string of = "tf32_rank" + std::to_string(rank);
      add_rows(list, t, {of, rank, 2, 2, 65, 4, 2, 64, 0, 0, 0, true});
      add_rows(list, t, {of + "_all", rank, 2, 1, 70, 2, 1, 128, 45, 60, 0.2, true});
    }

  const int64_t heads = 4, kv_heads = 2, dim = t == DType::f32 ? 5 : 16;
  const Attrs attrs = Attrs().set("heads", heads).set("kv_heads", kv_heads);
  const Arg q = tensor(t, {2, 7, heads * dim}), kv = tensor(t, {2, 7, 2, kv_heads * dim});
  const std::string name = "keys_" + std::string(crest::name(t));
  list.push_back(
      {"split_keys", name, {tensor(t, {2, 7, (heads + 2 * kv_heads) * dim})}, attrs, nullptr, some_scalars()});
  list.push_back({"join_keys", name, {q, kv}, attrs, nullptr, some_scalars()});
}

// A rank with all chunks: the shares of several ranks are sums over parts
// (tests/passes/lockstep.cpp).
void add_grads(std::vector<GradCase>& list) {
  const DType d = DType::f64;
  auto add = [&](const char* name, const char* op, std::vector<Arg> in, const Attrs& attrs, size_t outs) {
    list.push_back({name, std::move(in), {}, [=](Builder& b, const std::vector<ValueId>& v) {
                      auto o = b.emit(op, v, attrs);
                      o.resize(outs);
                      return o;
                    }});
  };
  const Attrs heads = Attrs().set("heads", 4).set("kv_heads", 2);
  add("split_keys", "split_keys", {tensor(d, {2, 3, 8 * 3})}, heads, 2);
  const Attrs attrs = Attrs(heads).set("ranks", 1).set("scale", 0.6);
  const std::vector<Arg> in = {tensor(d, {2, 6, 4 * 3}), tensor(d, {2, 6, 2, 2 * 3})};
  add("attention_rows", "attention_rows", in, attrs, 1);
  add("attention_rows_window_dropout", "attention_rows", {in[0], in[1], scalars_arg()},
      Attrs(attrs).set("window", 4).set("p", 0.3).set("rng_id", 2), 1);
}

const CaseFile file = {add_cases, add_grads};

}  // namespace

}  // namespace crest::test
