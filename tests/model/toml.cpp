#include <fmt/format.h>

#include <cmath>

#include "core/random.h"
#include "files.h"
#include "model/config.h"
#include "model/config_files.h"

using namespace crest;

static ModelConfig parse_toml_model(const std::string& text) { return parse_model_toml(text, "m.toml"); }

TEST(ModelToml, EveryPresetSurvivesTheRoundTrip) {
  for (auto& name : preset_names()) {
    ModelConfig c = load_model_config(name);
    EXPECT_EQ(parse_toml_model(to_toml(c)), c) << to_toml(c);
  }
}

TEST(ModelToml, RandomConfigurationsSurviveTheRoundTrip) {
  for (uint64_t i = 0; i < 200; ++i) {
    uint32_t n = 0;
    auto pick = [&](int64_t low, int64_t high) { return low + int64_t(random_bits(7, i, n++)) % (high - low + 1); };
    ModelConfig c;
    c.name = i % 3 ? "quote \" back \\ tab \t é" : "plain";
    c.kv_heads = pick(1, 4), c.heads = c.kv_heads * pick(1, 4), c.head_dim = 2 * pick(1, 64), c.width = pick(1, 5000);
    c.vocab = pick(2, 200000), c.context = pick(1, 100000), c.layers = pick(1, 90), c.ff = pick(1, 20000);
    c.norm = NormKind(pick(0, 1)), c.position = PositionKind(pick(0, 1)), c.activation = ActivationKind(pick(0, 5));
    c.bias = pick(0, 1), c.tied = pick(0, 1);
    c.qkv_bias = pick(0, 1), c.attention_bias = pick(0, 1), c.mlp_bias = pick(0, 1);
    c.dropout = double(pick(0, 1000)) / 1001, c.norm_eps = std::pow(10, -double(pick(1, 9))) / 3;
    c.rope_theta = double(pick(1, 1000000)) * 1.1;
    if (pick(0, 1)) c.rope_scaling = {1 + uniform(random_bits(7, i, n++)), 1.0 / 3, 2, pick(1, 100000)};
    if (c.head_dim > 2) c.rope_scaling.type = RopeScalingType(pick(0, 3));
    c.rope_scaling.beta_fast = 2 + double(pick(1, 100)) / 3, c.rope_scaling.attention_factor = double(pick(0, 9)) / 7;
    c.rope_scaling.truncate = pick(0, 1);
    c.window = pick(0, 1) * pick(1, 5000);
    c.norm_position = NormPosition(pick(0, 2)), c.qk_norm = QkNorm(pick(0, 2)), c.norm_bias = pick(0, 1);
    c.parallel_residual = pick(0, 1), c.rotary_dim = pick(0, 1) * 2 * pick(1, c.head_dim / 2);
    if (c.rotary_dim == 2) c.rope_scaling.type = RopeScalingType::yarn;
    c.attention_scale = double(pick(0, 3)) / 7, c.residual_scale = double(pick(1, 9)) / 7;
    c.embedding_scale = double(pick(1, 9)) / 7, c.logit_scale = double(pick(1, 9)) / 7;
    c.zero_projections = pick(0, 1), c.embedding_norm = pick(0, 1), c.norm_weight = pick(0, 1),
    c.logit_cap = double(pick(0, 3)) / 7;
    const int64_t kinds = pick(1, 3);
    std::vector<LayerConfig> all;
    for (int64_t l = 0; l < c.layers; ++l) {
      LayerConfig kind = static_cast<const LayerConfig&>(c);
      const int64_t k = pick(0, kinds - 1);
      if (k == 1) kind.window += 1, kind.rope = !c.rope;
      if (k == 2) kind.rope_theta *= 3, kind.rope_scaling.factor += 1, kind.rope_scaling.low_freq_factor = 0.25;
      all.push_back(kind);
    }
    c.set_layers(all);
    for (int64_t l = 0; l < c.layers; ++l) ASSERT_EQ(c.layer(l), all[size_t(l)]) << l;
    EXPECT_EQ(parse_toml_model(to_toml(c)), c) << to_toml(c);
  }
}

TEST(ModelToml, KeysOverrideThePresetInAnyOrder) {
  ModelConfig c = parse_toml_model("layers = 2\npreset = \"llama-1B\"\nname = \"short\"\n[rope_scaling]\nfactor = 4");
  ModelConfig expected = load_model_config("llama-1B");
  expected.layers = 2, expected.name = "short", expected.rope_scaling.factor = 4;
  EXPECT_EQ(c, expected);
}

TEST(ModelToml, UnwrittenSizesFollowWrittenOnes) {
  ModelConfig c = parse_toml_model("width = 96\nheads = 3");
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.kv_heads, 3);
  EXPECT_EQ(c.ff, 384);
  c = parse_toml_model("preset = \"llama-nano\"\nheads = 8");
  EXPECT_EQ(c.kv_heads, 2) << "grouped heads of the preset stay";
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.ff, 384);
  c = parse_toml_model("width = 96\nheads = 3\nhead_dim = 8\nff = 7\nkv_heads = 1");
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.ff, 7);
  EXPECT_EQ(c.kv_heads, 1);
}

TEST(ModelToml, LayersDifferByPattern) {
  ModelConfig c =
      parse_toml_model("layers = 7\nwindow = 64\nactivation = \"relu2\"\npattern = \"SSL\"\n[layer.L]\nwindow = 0");
  EXPECT_EQ(c.pattern, "AAB");
  for (int64_t l = 0; l < 7; ++l) EXPECT_EQ(c.layer(l).window, l % 3 == 2 ? 0 : 64) << l;
  EXPECT_EQ(c.layer(2).activation, ActivationKind::relu2);
  EXPECT_EQ(c.window_of(0, 64), 0) << "no shorter than the sequence";
  EXPECT_EQ(c.keys_per_token(128), 128 - 5 * 64.0 / 7);
  c.set_window(32);
  EXPECT_EQ(c.layer(1).window, 32);
  EXPECT_EQ(c.layer(2).window, 0);
  c.set_window(0);
  EXPECT_EQ(c.pattern, "") << "now all are alike";
  c = parse_toml_model("pattern = \"xy\"\nlayers = 3\n[layer.x]\nrope = false");
  EXPECT_EQ(c.pattern, "BA") << "A is the kind of the keys above";
  EXPECT_FALSE(c.layer(2).rope);
  EXPECT_EQ(parse_toml_model("layers = 2\npattern = \"AB\"\n[layer.B]\nwindow = 0").pattern, "");
  expect_error([] { parse_toml_model("layers = 2\npattern = \"ab\""); }, {"'a' and 'b'", "[layer.b]"});
  expect_error([] { parse_toml_model("layers = 2\npattern = \"aba\"\n[layer.b]\nwindow = 3"); },
               {"3 letters for 2 layers", "line 2"});
  expect_error([] { parse_toml_model("pattern = \"ab\"\n[layer.c]\nwindow = 3"); }, {"no layer is 'c'", "line 2"});
  expect_error([] { parse_toml_model("pattern = \"ab\"\n[layer.b]\nheads = 3"); },
               {"unknown key 'heads'", "line 3, column 1"});
  expect_error([] { parse_toml_model("pattern = \"ab\"\n[layer.b]\nwindow = -3"); }, {"window = -3"});
  expect_error([] { parse_toml_model("layer = 3"); }, {"layer must be a table"});
  expect_error([] { parse_toml_model("head_dim = 8\nrotary_dim = 9\nposition = \"rope\""); },
               {"rotary_dim = 9 with head_dim = 8"});
}

// Of Crest's older files.
TEST(ModelToml, FullLayersAreTheFirstOnes) {
  ModelConfig c = parse_toml_model("layers = 3\nwindow = 8\nfull_layers = 1");
  EXPECT_EQ(c.pattern, "BAA");
  EXPECT_EQ(c.layer(0).window, 0);
  EXPECT_EQ(c.layer(2).window, 8);
  EXPECT_EQ(first_full_layers(c), 1);
  EXPECT_EQ(parse_toml_model("layers = 3\nfull_layers = 2"), parse_toml_model("layers = 3"));
}

TEST(ModelToml, ErrorsNamePlaceKeyAndRemedy) {
  expect_error([] { parse_toml_model("layers = 2\n  widht = 96"); },
               {"m.toml (line 2, column 3)", "unknown key 'widht'", "'width'"});
  expect_error([] { parse_toml_model("[rope_scaling]\nfactr = 2"); },
               {"m.toml (line 2, column 1)", "'factr'", "'factor'"});
  expect_error([] { parse_toml_model("width = \"96\""); },
               {"m.toml (line 1, column 9)", "width must be a whole number"});
  expect_error([] { parse_toml_model("width = 96.0"); }, {"width must be a whole number"});
  expect_error([] { parse_toml_model("dropout = true"); }, {"dropout must be a number"});
  expect_error([] { parse_toml_model("bias = 1"); }, {"bias must be true or false"});
  expect_error([] { parse_toml_model("name = 3"); }, {"name must be a string"});
  expect_error([] { parse_toml_model("norm = \"rsm\""); }, {"m.toml (line 1, column 8)", "\"rsm\"", "'rms'"});
  expect_error([] { parse_toml_model("preset = \"nanu\""); }, {"m.toml (line 1, column 10)", "'nanu'", "'nano'"});
  expect_error([] { parse_toml_model("rope_scaling = 3"); }, {"must be a table"});
  expect_error([] { parse_toml_model("width = "); }, {"m.toml (line 1, column", "not valid TOML"});
  expect_error([] { parse_toml_model("width = 96\nwidth = 97"); }, {"m.toml (line 2, column", "not valid TOML"});
  expect_error([] { parse_toml_model("heads = 7"); }, {"heads = 7", "does not divide"});
  expect_error([] { parse_toml_model("heads = 0"); }, {"heads = 0"});
  expect_error([] { parse_toml_model("layers = -1"); }, {"layers = -1"});
  expect_error([] { parse_toml_model("window = -1"); }, {"window = -1", "from 0"});
  expect_error([] { parse_toml_model("layers = 3\nwindow = 8\nfull_layers = 4"); }, {"full_layers = 4", "from 0 to 3"});
  expect_error([] { parse_toml_model("vocab = 9223372036854775807"); }, {"vocab = 9223372036854775807"});
  expect_error([] { parse_toml_model("width = 9223372036854775807"); }, {});
  expect_error([] { parse_toml_model("dropout = nan"); }, {"dropout"});
  expect_error([] { parse_toml_model("rope_theta = inf"); }, {"rope_theta"});
  expect_error([] { parse_toml_model("rope_theta = 0.0"); }, {"rope_theta"});
  expect_error([] { parse_toml_model("[rope_scaling]\nfactor = 2\nlow_freq_factor = 4"); },
               {"low_freq_factor = 4", "4"});
  expect_error([] { parse_toml_model("[rope_scaling]\ntype = \"yarm\""); }, {"type = \"yarm\"", "yarn"});
  expect_error([] { parse_toml_model("[rope_scaling]\ntype = \"yarn\"\nbeta_slow = 40"); },
               {"beta_slow = 40", "beta_fast = 32"});
  expect_error([] { parse_toml_model("rope_theta = 1\n[rope_scaling]\ntype = \"yarn\""); }, {"rope_theta = 1", "yarn"});
  expect_error([] { parse_toml_model("head_dim = 2\n[rope_scaling]\ntype = \"dynamic\"\nfactor = 2"); },
               {"head_dim = 2", "dynamic"});
}

TEST(ModelToml, DeepNestingIsAnErrorNotACrash) {
  std::string dotted = "a", arrays = "a = ";
  for (int i = 0; i < 200000; ++i) dotted += ".a", arrays += "[";
  expect_error([&] { parse_toml_model(dotted + " = 1"); }, {"m.toml", "nested deeper than 8"});
  expect_error([&] { parse_toml_model(arrays); }, {"m.toml", "nested deeper"});
  std::string mixed = "a = ";
  for (int i = 0; i < 400; ++i) mixed += "[{a.a = ";
  expect_error([&] { parse_toml_model(mixed); }, {"m.toml", "nested deeper"});
}

TEST(ModelFile, FilesFoldersAndWhatIsNeither) {
  ModelFolder t;
  EXPECT_EQ(load_model_config(t.write("mine.toml", "preset = \"nano\"\nlayers = 3")).layers, 3);
  EXPECT_EQ(load_model_config(t.write("mine2.toml", "layers = 3")).name, "mine2");
  EXPECT_EQ(read_model_file(t.path("absent")), std::nullopt);
  expect_error([&] { load_model_config(t.path("absent")); }, {"neither a preset nor a file"});
  std::filesystem::create_directory(t.path("empty"));
  expect_error([&] { load_model_config(t.path("empty")); }, {"neither model.toml nor config.json"}, Exit::failed);
  expect_error([&] { load_model_config(t.write("x.json", "layers = 3")); }, {"is not a JSON object"});
  expect_error([&] { load_model_config(t.write("big.toml", std::string(2 << 20, '#'))); }, {"2.00 MiB"}, Exit::failed);
  expect_error([&] { load_model_config("/dev/zero"); }, {"not a regular file"}, Exit::failed);
  ModelConfig c = load_model_config("llama-nano");
  c.dropout = 0.25;
  t.write("run/config.json", to_huggingface_config(c));
  t.write("run/model.toml", to_toml(c));
  EXPECT_EQ(load_model_config(t.path("run")), c) << "model.toml knows the dropout, config.json does not";
}
