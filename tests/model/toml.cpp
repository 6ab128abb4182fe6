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
    c.norm = NormKind(pick(0, 1)), c.position = PositionKind(pick(0, 1)), c.activation = ActivationKind(pick(0, 3));
    c.bias = pick(0, 1), c.tied = pick(0, 1);
    c.qkv_bias = pick(0, 1), c.attention_bias = pick(0, 1), c.mlp_bias = pick(0, 1);
    c.dropout = double(pick(0, 1000)) / 1001, c.norm_eps = std::pow(10, -double(pick(1, 9))) / 3;
    c.rope_theta = double(pick(1, 1000000)) * 1.1;
    if (pick(0, 1)) c.rope_scaling = {1 + uniform(random_bits(7, i, n++)), 1.0 / 3, 2, pick(1, 100000)};
    if (c.head_dim > 2) c.rope_scaling.type = RopeScalingType(pick(0, 3));
    c.rope_scaling.beta_fast = 2 + double(pick(1, 100)) / 3, c.rope_scaling.attention_factor = double(pick(0, 9)) / 7;
    c.rope_scaling.truncate = pick(0, 1);
    c.window = pick(0, 1) * pick(1, 5000), c.full_layers = pick(0, c.layers);
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
