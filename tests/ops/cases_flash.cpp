// Attention at sizes on both sides of tile borders: head dimensions between and beyond the widths
// of tiles, lengths across their borders with and without dropout, groups of heads; f32 with TF32
// allowed.
#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"

namespace crest::test {

static void add_attention(std::vector<Case>& list, DType t, const std::string& n, const Shape& qkv, int64_t heads,
                          int64_t kv_heads, bool causal, double p = 0, double scale = 0, int64_t document = 0,
                          bool tf32 = false) {
  int64_t b = qkv[0], s = qkv[1], d = qkv[2] / (heads + 2 * kv_heads);
  Attrs attrs = Attrs().set("heads", heads).set("kv_heads", kv_heads).set("causal", causal);
  attrs.set("scale", scale == 0 ? 1 / std::sqrt(double(d)) : scale);
  if (p > 0) attrs.set("p", p).set("rng_id", 9);
  if (tf32) attrs.set("tf32", 1);
  Arg in = tensor(t, qkv), extra = p > 0 ? scalars_arg() : absent();
  Arg o = tensor(t, {b, s, heads * d}), lse = tensor(DType::f32, {b, heads, s});
  std::string name = n + "_" + std::string(crest::name(t));
  Arg documents = document ? positions({b, s}, document) : absent();
  // With dropout also where another rank has heads before these.
  for (int rank : {0, 1}) {
    if (rank == 1 && p == 0) break;
    if (rank == 1) name = n + "_rank1_" + std::string(crest::name(t)), attrs.set("axes", "tensor");
    const Case forward = {"attention", name,    {in, extra, documents}, attrs, nullptr, some_scalars(), nullptr, {},
                          rank,        1 + rank};
    auto complete = [forward](Values& v) {
      Values out = reference_outputs(in_double(forward), {v[1], v[4], v[5]});
      v[2] = out[0], v[3] = out[1];
    };
    list.push_back(forward);
    list.push_back({"attention_grad",
                    name,
                    {o, in, o, lse, extra, documents},
                    attrs,
                    nullptr,
                    some_scalars(),
                    complete,
                    {},
                    rank,
                    1 + rank});
  }
}

static void add_cases(std::vector<Case>& list, DType t) {
  // {batch, tokens, (heads + 2 kv_heads) head_dim}
  add_attention(list, t, "width_128", {2, 130, 3 * 128}, 1, 1, true);
  add_attention(list, t, "width_64_full", {1, 200, 4 * 64}, 2, 1, false);
  add_attention(list, t, "width_64_blocks", {2, 130, 6 * 64}, 2, 2, true);
  add_attention(list, t, "width_96_grouped", {2, 70, 4 * 96}, 2, 1, true);
  add_attention(list, t, "odd_width", {1, 67, 8 * 33}, 4, 2, true);
  add_attention(list, t, "odd_width_dropout", {2, 37, 3 * 50}, 1, 1, true, 0.3);
  add_attention(list, t, "aligned_dropout", {2, 68, 8 * 64}, 4, 2, true, 0.3);
  add_attention(list, t, "aligned_full_dropout", {1, 72, 3 * 128}, 1, 1, false, 0.1);
  add_attention(list, t, "wide", {1, 20, 4 * 136}, 2, 1, true, 0.2);
  add_attention(list, t, "negative_scale", {1, 20, 3 * 16}, 1, 1, true, 0, -0.5);
  // Documents from a token to several tiles; as long as the row; with dropout, groups, odd widths,
  // wide heads.
  add_attention(list, t, "documents", {2, 330, 6 * 64}, 2, 2, true, 0, 0, 50);
  add_attention(list, t, "documents_short", {2, 130, 4 * 64}, 2, 1, true, 0, 0, 4);
  add_attention(list, t, "documents_one", {1, 200, 3 * 32}, 1, 1, true, 0, 0, 1000000);
  add_attention(list, t, "documents_long", {1, 390, 3 * 128}, 1, 1, true, 0, 0, 150);
  add_attention(list, t, "documents_odd", {2, 67, 8 * 33}, 4, 2, true, 0, 0, 20);
  add_attention(list, t, "documents_dropout", {2, 132, 4 * 64}, 2, 1, true, 0.3, 0, 30);
  add_attention(list, t, "documents_wide", {1, 20, 4 * 136}, 2, 1, true, 0.2, 0, 6);
  add_attention(list, t, "large_scores", {1, 150, 3 * 32}, 1, 1, true, 0, 4);
  add_attention(list, t, "one_token_of_three_rows", {3, 1, 3 * 64}, 1, 1, true);
  add_attention(list, t, "under_a_tile", {3, 63, 3 * 64}, 1, 1, true);
  // Enough blocks for the large tiles.
  add_attention(list, t, "width_32_blocks", {2, 129, 6 * 32}, 2, 2, false);
  add_attention(list, t, "width_96_blocks", {2, 129, 6 * 96}, 2, 2, true);
  add_attention(list, t, "width_128_blocks", {2, 129, 6 * 128}, 2, 2, true);
  // Heads with sums shared by several warps.
  add_attention(list, t, "width_192", {3, 63, 3 * 192}, 1, 1, true);
  add_attention(list, t, "width_192_one_token", {2, 1, 3 * 192}, 1, 1, true);
  add_attention(list, t, "width_256_grouped", {1, 129, 4 * 256}, 2, 1, false);
  add_attention(list, t, "width_256_dropout", {2, 68, 4 * 256}, 2, 1, true, 0.3);
  add_attention(list, t, "width_256_documents", {1, 200, 3 * 256}, 1, 1, true, 0, 0, 40);
  add_attention(list, t, "width_512", {1, 129, 3 * 512}, 1, 1, true);
  add_attention(list, t, "width_500_odd", {1, 39, 4 * 500}, 2, 1, true, 0.2, 0, 9);
  if (t != DType::f32) return;
  add_attention(list, t, "many_tiles", {1, 1000, 3 * 32}, 1, 1, true);
  add_attention(list, t, "tf32_many_tiles", {1, 1000, 3 * 32}, 1, 1, true, 0, 0, 0, true);
  add_attention(list, t, "tf32", {2, 130, 6 * 64}, 2, 2, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_grouped_dropout", {2, 68, 8 * 64}, 4, 2, true, 0.3, 0, 0, true);
  add_attention(list, t, "tf32_documents", {2, 330, 3 * 64}, 1, 1, true, 0, 0, 50, true);
  add_attention(list, t, "tf32_width_32", {2, 129, 6 * 32}, 2, 2, false, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_80", {1, 63, 3 * 80}, 1, 1, false, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_96", {2, 129, 6 * 96}, 2, 2, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_128", {2, 129, 6 * 128}, 2, 2, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_128_short", {1, 130, 3 * 128}, 1, 1, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_odd_width", {1, 67, 8 * 33}, 4, 2, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_192", {2, 70, 4 * 192}, 2, 1, true, 0, 0, 0, true);
  add_attention(list, t, "tf32_width_256_documents", {1, 200, 3 * 256}, 1, 1, true, 0.1, 0, 40, true);
}

static const CaseFile file = {add_cases};

}  // namespace crest::test
