#include "model/parameters.h"

#include <gtest/gtest.h>

using namespace crest;

namespace {

// Two layers of width 48 with 6 heads of 8, an MLP of 80, 37 tokens, 20 positions.
ModelConfig gpt2_shape() {
  ModelConfig c = load_model_config("nano");
  c.layers = 2, c.width = 48, c.heads = c.kv_heads = 6, c.head_dim = 8, c.ff = 80;
  c.vocab = 37, c.context = 20;
  return c;
}

// The same with 2 key/value heads, RMSNorm, RoPE, SwiGLU, no biases.
ModelConfig llama() {
  ModelConfig c = gpt2_shape();
  c.kv_heads = 2, c.bias = false;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu;
  return c;
}

struct Counts {
  int64_t all, matmuls, embeddings;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.all << " (" << c.matmuls << " in matmuls, " << c.embeddings << " in embeddings)";
}

Counts counts(const ModelConfig& c) {
  return {parameter_count(c), matmul_parameter_count(c), embedding_parameter_count(c)};
}

}  // namespace

// By hand. Layer of GPT-2: 144x48 + 48x48 + 2x80x48 = 16896 in matrices; biases 144 + 48 + 80 + 48,
// two norms of 2x48. Around: 37x48 + 20x48 embeddings, a norm.
TEST(Parameters, Gpt2) { EXPECT_EQ(counts(gpt2_shape()), (Counts{37648, 35568, 2736})); }

TEST(Parameters, Gpt2WithoutBiases) {
  ModelConfig c = gpt2_shape();
  c.bias = false;
  EXPECT_EQ(counts(c), (Counts{36768, 35568, 2736}));
}

// Layer: 80x48 + 48x48 + 3x80x48 = 17664 in matrices, two norms of 48. Around: 37x48, a norm.
TEST(Parameters, LlamaWithGroupedQueriesAndSwiglu) { EXPECT_EQ(counts(llama()), (Counts{37344, 37104, 1776})); }

TEST(Parameters, AnUntiedHeadCountsAgain) {
  ModelConfig c = llama();
  c.tied = false;
  EXPECT_EQ(counts(c), (Counts{39120, 37104, 1776}));
}

TEST(Parameters, BiasesOfLlama) {
  ModelConfig c = llama();
  c.qkv_bias = true;
  EXPECT_EQ(counts(c), (Counts{37504, 37104, 1776}));
  c.attention_bias = true;
  EXPECT_EQ(counts(c), (Counts{37600, 37104, 1776}));
  c.mlp_bias = true;
  EXPECT_EQ(counts(c), (Counts{38016, 37104, 1776}));
}

TEST(Parameters, HeadsNarrowerThanTheModel) {
  ModelConfig c = llama();
  c.head_dim = 4;
  EXPECT_EQ(counts(c), (Counts{31200, 30960, 1776}));
}

TEST(Parameters, PresetsInMatmulsAndEmbeddings) {
  EXPECT_EQ(counts(load_model_config("gpt2-124M")), (Counts{124439808, 123532032, 39383808}));
  EXPECT_EQ(counts(load_model_config("llama-1B")), (Counts{1235814400, 1235746816, 262668288}));
  EXPECT_EQ(counts(load_model_config("llama-8B")), (Counts{8030261248, 7504658432, 525336576}));
}

TEST(Parameters, FlopsPerTokenArePalms) {
  ModelConfig c = load_model_config("gpt2-124M");
  EXPECT_EQ(flops_per_token(c, 1024), 6 * 123532032.0 + 12 * 12 * 768 * 1024);
  c.window = 256;
  EXPECT_EQ(flops_per_token(c, 1024), 6 * 123532032.0 + 12 * 12 * 768 * 256);
}

TEST(Parameters, OrderIsThatOfTheForwardPass) {
  ModelConfig c = gpt2_shape();
  c.layers = 1, c.tied = false;
  std::vector<std::string> names;
  for (auto& p : parameters_of(c)) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias",
                                             "h.0.attn.qkv.weight", "h.0.attn.qkv.bias", "h.0.attn.proj.weight",
                                             "h.0.attn.proj.bias", "h.0.ln_2.weight", "h.0.ln_2.bias",
                                             "h.0.mlp.fc.weight", "h.0.mlp.fc.bias", "h.0.mlp.proj.weight",
                                             "h.0.mlp.proj.bias", "ln_f.weight", "ln_f.bias", "lm_head.weight"}));
}

TEST(Parameters, ZeroProjectionsStartAtZero) {
  ModelConfig c = llama();
  c.zero_projections = true;
  for (auto& p : parameters_of(c)) {
    const bool projection = p.name.ends_with(".proj.weight");
    EXPECT_EQ(p.init_std == 0, projection || p.init_mean == 1) << p.name;
  }
}

// By hand: queries of 48 and keys of 16 elements, heads of 8; norms of 48 behind attention and MLP.
TEST(Parameters, NormsOfQueriesAndKeysAndBehindBranches) {
  ModelConfig c = llama();
  const int64_t plain = parameter_count(c);
  c.qk_norm = QkNorm::head;
  EXPECT_EQ(parameter_count(c), plain + 2 * (8 + 8));
  c.qk_norm = QkNorm::row;
  EXPECT_EQ(parameter_count(c), plain + 2 * (48 + 16));
  c.norm_position = NormPosition::both;
  EXPECT_EQ(parameter_count(c), plain + 2 * (48 + 16 + 96));
  c.norm_position = NormPosition::after;
  EXPECT_EQ(parameter_count(c), plain + 2 * (48 + 16));
  c.norm = NormKind::layer, c.norm_bias = true;
  EXPECT_EQ(parameter_count(c), plain + 2 * (48 + 16 + 96) + 48);
}
