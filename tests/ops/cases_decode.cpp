// Special cases of the CUDA kernels of decoding: caches of several tiles and splits, groups of
// query heads, tiles of rows, head dimensions and addresses unfit for vectors, long contexts.
#include <cmath>

#include "ops/case.h"

namespace crest::test {

static void add_cases(std::vector<Case>& list, DType t) {
  auto add = [&](const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs) -> Case& {
    list.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                    some_scalars(), nullptr});
    return list.back();
  };
  struct Decode {
    const char* name;
    int64_t batch, tokens, heads, kv_heads, dim, context;
    int position, length;
  };
  for (const Decode& d :
       {Decode{"many_splits", 1, 1, 2, 2, 64, 700, 655, 1},  // the last ones are empty
        Decode{"one_split_of_many_tiles", 5, 1, 4, 4, 16, 330, 200, 1},
        Decode{"grouped_splits", 2, 1, 4, 1, 64, 300, 150, 1},  // four rows a block
        Decode{"odd", 1, 3, 6, 2, 15, 200, 130, 3},             // no vectors
        Decode{"half_vectors", 2, 2, 3, 3, 20, 200, 130, 2},
        Decode{"chunk", 1, 20, 4, 2, 24, 150, 110, 13},          // rows of padding
        Decode{"chunk_from_start", 1, 33, 2, 2, 64, 80, 0, 33},  // rows with one visible tile
        Decode{"end_of_cache", 1, 4, 2, 2, 40, 100, 96, 4},      // to its last position
        Decode{"wide", 1, 1, 2, 1, 320, 70, 60, 1}, Decode{"no_tokens", 1, 4, 2, 2, 16, 300, 200, 0}}) {
    int64_t width = (d.heads + 2 * d.kv_heads) * d.dim;
    Arg qkv = tensor(t, {d.batch, d.tokens, width});
    Arg cache = tensor(t, {d.batch, 2, d.kv_heads, d.context, d.dim});
    Attrs attrs = Attrs().set("heads", d.heads).set("kv_heads", d.kv_heads);
    Case& append = add("cache_append", d.name, {qkv, cache, scalars_arg()}, attrs);
    append.scalars.position = d.position, append.scalars.length = d.length;
    attrs.set("scale", 1 / std::sqrt(double(d.dim)));
    Case& attend = add("cached_attention", d.name, {qkv, cache, scalars_arg()}, attrs);
    attend.scalars.position = d.position, attend.scalars.length = d.length;
  }

  Case& beyond =
      add("cache_append", "beyond_the_cache", {tensor(t, {2, 4, 4 * 16}), tensor(t, {2, 2, 1, 20, 16}), scalars_arg()},
          Attrs().set("heads", 2).set("kv_heads", 1));
  beyond.scalars.position = 18, beyond.scalars.length = 4;

  Attrs rope = Attrs().set("heads", 3).set("kv_heads", 1).set("theta", 500000.0);
  for (bool inverse : {false, true}) {
    rope.set("inverse", inverse);
    std::string n = inverse ? "_inverse" : "";
    add("rope", "vectors" + n, {tensor(t, {2, 5, 5 * 64})}, rope);
    add("rope", "odd_half" + n, {tensor(t, {2, 5, 5 * 30})}, rope);
    add("rope", "part" + n, {tensor(t, {2, 5, 5 * 64})}, Attrs(rope).set("rotary_dim", 16));
    add("rope", "odd_part" + n, {tensor(t, {2, 5, 5 * 31})}, Attrs(rope).set("rotary_dim", 10));
    add("rope", "most" + n, {tensor(t, {2, 5, 5 * 48})}, Attrs(rope).set("rotary_dim", 46));
    add("rope", "far" + n, {tensor(t, {1, 3, 5 * 64}), scalars_arg()}, rope).scalars.position = 131000;
  }
  add("rope", "documents", {tensor(t, {3, 40, 5 * 64}), absent(), positions({3, 40}, 9)}, rope);
  add("rope", "documents_odd", {tensor(t, {70, 3, 5 * 30}), absent(), positions({70, 3}, 2)}, rope);
  add("rope", "many_samples", {tensor(t, {70, 2, 5 * 16})}, rope);
  add("rope", "shifted", {view(t, {2, 3, 5 * 16}, {3 * 5 * 16, 5 * 16, 1}, 3)}, rope);

  int64_t h = 3, d = 16, width = 5 * d;
  Shape strides = {7 * width, d, width, 1};
  auto heads = [&](int64_t n, int64_t offset) { return view(t, {2, n, 7, d}, strides, offset); };
  add("join_heads", "vectors", {heads(h, 0), heads(1, h * d), heads(1, (h + 1) * d)}, {});
  add("join_heads", "shifted", {heads(h, 1)}, {});
  add("join_heads", "transposed", {view(t, {2, h, 7, d}, {h * d * 7, 7 * d, 1, 7}, 0)}, {});
}

static const CaseFile file = {add_cases};

}  // namespace crest::test
