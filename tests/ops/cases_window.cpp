// Sliding windows: of one key, of less and more than a tile, longer than the sequence; lengths
// around the borders of tiles; with documents, dropout, groups and wide heads; caches of several
// splits.
#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"

namespace crest::test {

namespace {

struct Window {
  std::string name;
  int64_t batch, tokens, heads, kv_heads, dim, window;
  int64_t document = 0;  // tokens on average; 0: none
  double p = 0;
  bool tf32 = false;
};

void add_attention(std::vector<Case>& list, DType t, const Window& w) {
  Attrs attrs = Attrs().set("heads", w.heads).set("kv_heads", w.kv_heads).set("causal", 1).set("window", w.window);
  attrs.set("scale", 1 / std::sqrt(double(w.dim)));
  if (w.p > 0) attrs.set("p", w.p).set("rng_id", 9);
  if (w.tf32) attrs.set("tf32", 1);
  Shape tokens = {w.batch, w.tokens};
  Arg qkv = tensor(t, {w.batch, w.tokens, (w.heads + 2 * w.kv_heads) * w.dim});
  Arg o = tensor(t, {w.batch, w.tokens, w.heads * w.dim}), lse = tensor(DType::f32, {w.batch, w.heads, w.tokens});
  Arg scalars = w.p > 0 ? scalars_arg() : absent(), documents = w.document ? positions(tokens, w.document) : absent();
  std::string name = w.name + "_" + std::string(crest::name(t));
  Case forward = {"attention", name, {qkv, scalars, documents}, attrs, nullptr, some_scalars(), nullptr};
  list.push_back(forward);
  auto complete = [forward](Values& v) {
    Values out = reference_outputs(in_double(forward), {v[1], v[4], v[5]});
    v[2] = out[0], v[3] = out[1];
  };
  list.push_back(
      {"attention_grad", name, {o, qkv, o, lse, scalars, documents}, attrs, nullptr, some_scalars(), complete});
}

void add_decoding(std::vector<Case>& list, DType t) {
  struct Decode {
    const char* name;
    int64_t batch, tokens, heads, kv_heads, dim, context;
    int position, length;
    int64_t window;
  };
  for (const Decode& d : {Decode{"window_of_one", 2, 1, 2, 2, 64, 700, 655, 1, 1},
                          Decode{"window_of_splits", 1, 1, 2, 2, 64, 700, 655, 1, 200},
                          Decode{"window_at_a_border", 1, 1, 4, 1, 64, 700, 639, 1, 64},
                          Decode{"window_not_full", 1, 1, 4, 1, 64, 700, 30, 1, 200},
                          Decode{"window_first_token", 3, 1, 1, 1, 32, 300, 0, 1, 7},
                          Decode{"window_chunk", 1, 40, 4, 2, 24, 300, 110, 33, 70},
                          Decode{"window_chunk_grouped", 2, 9, 6, 2, 15, 200, 90, 9, 20},
                          Decode{"window_chunk_from_start", 1, 129, 2, 2, 64, 160, 0, 129, 7},
                          Decode{"window_wide", 1, 1, 2, 1, 320, 200, 160, 1, 50},
                          Decode{"window_of_the_cache", 1, 1, 2, 2, 16, 300, 299, 1, 300}}) {
    Arg qkv = tensor(t, {d.batch, d.tokens, (d.heads + 2 * d.kv_heads) * d.dim});
    Arg cache = tensor(t, {d.batch, 2, d.kv_heads, d.context, d.dim});
    Attrs attrs = Attrs().set("heads", d.heads).set("kv_heads", d.kv_heads).set("window", d.window);
    attrs.set("scale", 1 / std::sqrt(double(d.dim)));
    Case c = {"cached_attention",
              std::string(d.name) + "_" + std::string(crest::name(t)),
              {qkv, cache, scalars_arg()},
              attrs,
              nullptr,
              some_scalars(),
              nullptr};
    c.scalars.position = d.position, c.scalars.length = d.length;
    list.push_back(c);
  }
}

void add_masks(std::vector<Case>& list, DType t) {
  auto add = [&](const char* name, std::vector<Arg> in, int64_t window) {
    list.push_back({"causal_mask", std::string(name) + "_" + std::string(crest::name(t)), std::move(in),
                    Attrs().set("window", window), nullptr, some_scalars(), nullptr});
  };
  add("window", {tensor(t, {3, 1, 65, 65})}, 7);
  add("window_of_one", {tensor(t, {1, 2, 64, 64})}, 1);
  add("window_vectors", {tensor(t, {2, 1, 64, 64})}, 20);
  add("window_longer", {tensor(t, {1, 1, 33, 33})}, 40);
  add("window_documents", {tensor(t, {2, 3, 64, 64}), positions({2, 64}, 20)}, 9);
}

void add_cases(std::vector<Case>& list, DType t) {
  for (int64_t tokens : {1, 63, 65, 129})
    for (int64_t window : {1, 7, 64, 200})
      add_attention(
          list, t, {"window_" + std::to_string(window) + "_of_" + std::to_string(tokens), 3, tokens, 1, 1, 32, window});
  add_attention(list, t, {"window_grouped", 2, 200, 4, 2, 64, 70});
  add_attention(list, t, {"window_blocks", 2, 129, 2, 2, 128, 30});
  add_attention(list, t, {"window_odd", 2, 67, 4, 2, 33, 20});
  add_attention(list, t, {"window_dropout", 2, 132, 4, 2, 64, 50, 0, 0.3});
  add_attention(list, t, {"window_documents", 2, 330, 2, 1, 64, 40, 90});
  add_attention(list, t, {"window_short_documents", 1, 130, 1, 1, 64, 40, 9});
  add_attention(list, t, {"window_documents_dropout", 1, 133, 2, 2, 32, 20, 60, 0.2});
  add_attention(list, t, {"window_wide", 1, 100, 2, 1, 136, 21});
  add_attention(list, t, {"window_256_documents", 1, 130, 1, 1, 256, 33, 50});
  add_attention(list, t, {"window_512", 1, 70, 1, 1, 512, 9});
  add_attention(list, t, {"window_generic", 1, 40, 2, 1, 520, 11, 20});
  if (t == DType::f32) {
    add_attention(list, t, {"window_tf32", 2, 130, 2, 2, 64, 45, 0, 0, true});
    add_attention(list, t, {"window_tf32_wide", 1, 90, 2, 1, 192, 33, 40, 0, true});
  }
  add_decoding(list, t);
  add_masks(list, t);
}

const CaseFile file = {add_cases};

}  // namespace

}  // namespace crest::test
