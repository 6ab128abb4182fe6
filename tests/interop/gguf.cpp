// crest export --to gguf: the file byte for byte, and models that llama.cpp lacks. What gguf and
// llama.cpp make of the files: studies/peers/gguf_check.py, run by LlamaCppWritesTheSameTokens.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "checkpoint/safetensors_folder.h"
#include "cli/train_harness.h"
#include "core/dtype.h"
#include "interop/gguf_architecture.h"
#include "interop/gguf_file.h"
#include "interop/python.h"
#include "model/config_files.h"
#include "model/parameters.h"

using namespace crest;
using namespace crest::test;

namespace {

// Of a GGUF file, as its specification says; a failure of the test for anything else.
class GgufReader {
 public:
  struct Tensor {
    std::vector<uint64_t> shape;  // backwards, as in the file
    uint32_t type = 0;
    std::string_view bytes;
    std::vector<float> floats() const {
      std::vector<float> out(bytes.size() / sizeof(float));
      std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
      return out;
    }
  };

  explicit GgufReader(const std::string& file) : file_(file) {
    EXPECT_EQ(file.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(take<uint32_t>(), 3u);
    const auto tensor_count = take<uint64_t>(), metadata_count = take<uint64_t>();
    for (uint64_t i = 0; i < metadata_count; ++i) {
      const std::string key = text();
      EXPECT_FALSE(metadata.contains(key)) << key;
      metadata[key] = value(take<uint32_t>());
    }
    std::vector<std::pair<std::string, uint64_t>> places;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      const std::string name = text();
      EXPECT_FALSE(tensors.contains(name)) << name;
      Tensor& t = tensors[name];
      t.shape.resize(take<uint32_t>());
      for (uint64_t& n : t.shape) n = take<uint64_t>();
      t.type = take<uint32_t>();
      places.emplace_back(name, take<uint64_t>());
    }
    // Each one begins where the one before it ends, at the next multiple of 32, and the file ends
    // with the last one.
    uint64_t start = padded(at_), next = 0;
    for (auto& place : places) {
      Tensor& t = tensors[place.first];
      EXPECT_EQ(place.second, next) << place.first;
      uint64_t elements = 1;
      for (uint64_t n : t.shape) elements *= n;
      const uint64_t bytes = t.type == 0 ? elements * 4 : t.type == 8 ? elements / 32 * 34 : elements * 2;
      t.bytes = std::string_view(file_).substr(start + next, bytes);
      EXPECT_EQ(t.bytes.size(), bytes) << place.first;
      next += padded(bytes);
    }
    EXPECT_EQ(file_.size(), start + next);
  }

  const Tensor& tensor(const std::string& name) const {
    static const Tensor none;
    auto it = tensors.find(name);
    EXPECT_NE(it, tensors.end()) << name;
    return it == tensors.end() ? none : it->second;
  }

  std::map<std::string, nlohmann::json> metadata;
  std::map<std::string, Tensor> tensors;

 private:
  static uint64_t padded(uint64_t bytes) { return (bytes + 31) / 32 * 32; }
  template <class T>
  T take() {
    T x{};
    if (at_ + sizeof x > file_.size()) {
      ADD_FAILURE() << "the file ends within its header";
      throw std::runtime_error("too short");
    }
    std::memcpy(&x, file_.data() + at_, sizeof x);
    at_ += sizeof x;
    return x;
  }
  std::string text() {
    const auto length = take<uint64_t>();
    std::string s = file_.substr(at_, length);
    at_ += length;
    return s;
  }
  nlohmann::json value(uint32_t type) {
    switch (type) {
      case 4: return take<uint32_t>();
      case 5: return take<int32_t>();
      case 6: return take<float>();
      case 7: return take<uint8_t>() != 0;
      case 8: return text();
      case 9: {
        const auto element = take<uint32_t>();
        auto all = nlohmann::json::array();
        for (uint64_t n = take<uint64_t>(); n > 0; --n) all.push_back(value(element));
        return all;
      }
    }
    ADD_FAILURE() << "metadata of type " << type;
    return {};
  }
  std::string file_;
  uint64_t at_ = 0;
};

std::string byte_llama(const std::string& more = "") {
  return "preset = \"llama-nano\"\nname = \"tiny\"\nlayers = 2\nheads = 2\nkv_heads = 1\nwidth = 32\nhead_dim = 16\n"
         "ff = 48\ncontext = 32\nvocab = 259\ntied = false\n" +
         more;
}

class Gguf : public testing::Test {
 protected:
  RunResult run(const std::vector<std::string>& words, int64_t largest_file = -1) {
    RunOptions o = f.options();
    o.largest_file = largest_file;
    return run_crest(words, o);
  }
  void train(const std::string& out) { ASSERT_EQ(f.train(out, 1, {"--quiet", "--sample-every", "0"}).code, 0); }
  std::vector<float> weight(const std::string& run, const std::string& name) {
    WeightsFolder weights = WeightsFolder::open(f / (run + "/checkpoints/step-000001"));
    const int64_t at = weights.find(name);
    EXPECT_GE(at, 0) << name;
    std::vector<float> values(size_t(element_count(weights.tensors()[size_t(at)].spec)));
    weights.read(size_t(at), values.data(), values.size() * sizeof(float));
    return values;
  }
  // A folder with weights of the right shapes, all zero, and the tokenizer of bytes.
  void zero_model(const std::string& text) {
    const std::string where = f.write("folder/model.toml", text);
    const ModelConfig config = parse_model_toml(text, where);
    std::vector<TensorSource> tensors;
    std::vector<float> zeros(1 << 16);
    for (auto& p : parameters_of(config)) tensors.push_back({{p.name, DType::f32, p.shape.dims()}, zeros.data()});
    write_safetensors(f / "folder/model.safetensors", tensors);
    std::filesystem::copy_file(f / "data/tokenizer.json", f / "folder/tokenizer.json",
                               std::filesystem::copy_options::overwrite_existing);
  }
  TrainFolder f;
};

}  // namespace

TEST_F(Gguf, Gpt2WithItsBytesAndMetadata) {
  train("run");
  RunResult r = run({"export", "run", "--to", "gguf", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["files"], nlohmann::json({"run.gguf"}));
  EXPECT_EQ(r.json()["folder"], std::filesystem::canonical(f.path()).string());
  EXPECT_EQ(r.json()["stored"], "f32");
  const std::string bytes = f.read("run.gguf");
  EXPECT_EQ(r.json()["bytes"], bytes.size());
  const GgufReader file(bytes);
  EXPECT_EQ(file.metadata.at("general.architecture"), "gpt2");
  EXPECT_EQ(file.metadata.at("gpt2.context_length"), 32);
  EXPECT_EQ(file.metadata.at("gpt2.attention.head_count"), 2);
  EXPECT_FLOAT_EQ(file.metadata.at("gpt2.attention.layer_norm_epsilon").get<float>(), 1e-5f);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.tokens").size(), 257u);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.tokens")[' '], "\u0120");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.token_type")[256], 3);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.eos_token_id"), 256);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(file.tensors.size(), 4u + 2 * 12);
  EXPECT_EQ(file.tensor("token_embd.weight").floats(), weight("run", "transformer.wte.weight"));
  EXPECT_EQ(file.tensor("blk.1.attn_norm.bias").floats(), weight("run", "transformer.h.1.ln_1.bias"));
  // transformers stores these matrices the other way around: [in, out].
  const auto fc = weight("run", "transformer.h.1.mlp.c_fc.weight");
  const auto up = file.tensor("blk.1.ffn_up.weight");
  EXPECT_EQ(up.shape, (std::vector<uint64_t>{32, 128}));
  for (size_t in = 0; in < 32; ++in)
    for (size_t out = 0; out < 128; ++out) ASSERT_EQ(up.floats()[out * 32 + in], fc[in * 128 + out]);
  expect_error({"export", "run", "--to", "gguf"}, 1, {"run.gguf: the output file exists"}, f.options());
  EXPECT_EQ(f.read("run.gguf"), bytes);
}

TEST_F(Gguf, LlamaRotatesNeighborsAndSixteenBitsAreRoundedOnce) {
  f.write("tiny.toml", byte_llama("[rope_scaling]\ntype = \"llama3\"\nfactor = 8\noriginal_context = 16\n"));
  train("run");
  RunResult r = run({"export", "run", "--to", "gguf", "--out", "sub/m.gguf"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "llama-server -m ")) << r.out;
  const GgufReader file(f.read("sub/m.gguf"));
  EXPECT_EQ(file.metadata.at("llama.attention.head_count_kv"), 1);
  EXPECT_EQ(file.metadata.at("llama.rope.dimension_count"), 16);
  EXPECT_FALSE(file.metadata.contains("llama.rope.scaling.type"));
  const auto q = weight("run", "model.layers.1.self_attn.q_proj.weight"),
             stored = file.tensor("blk.1.attn_q.weight").floats();
  for (size_t head = 0; head < 2; ++head)
    for (size_t i = 0; i < 16; ++i)
      for (size_t c = 0; c < 32; ++c)
        ASSERT_EQ(stored[(head * 16 + i) * 32 + c], q[(head * 16 + i % 2 * 8 + i / 2) * 32 + c]) << head << " " << i;
  EXPECT_EQ(file.tensor("blk.1.attn_v.weight").floats(), weight("run", "model.layers.1.self_attn.v_proj.weight"));
  EXPECT_EQ(file.tensor("output.weight").floats(), weight("run", "lm_head.weight"));
  // Fast pairs keep their frequency, slow ones have an eighth of it.
  const auto factors = file.tensor("rope_freqs.weight").floats();
  ASSERT_EQ(factors.size(), 8u);
  EXPECT_EQ(factors.back(), 8.0f);
  EXPECT_LT(factors.front(), factors.back());
  for (auto& [kind, type] : {std::pair{"f16", DType::f16}, {"bf16", DType::bf16}}) {
    ASSERT_EQ(run({"export", "run", "--to", "gguf", "--dtype", kind, "--out", kind}).code, 0);
    const GgufReader half(f.read(kind));
    const std::string_view bytes = half.tensor("blk.1.attn_q.weight").bytes;
    ASSERT_EQ(bytes.size(), 2 * stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      char rounded[2];
      store_element(rounded, type, 0, stored[i]);
      ASSERT_EQ(bytes.substr(2 * i, 2), std::string_view(rounded, 2)) << kind << " " << i;
    }
    EXPECT_EQ(half.tensor("blk.1.attn_norm.weight").type, 0u) << "vectors stay in fp32";
  }
}

TEST_F(Gguf, EightBitsWhereRowsAreWholeBlocks) {
  f.write("tiny.toml", byte_llama());
  train("run");
  RunResult r = run({"export", "run", "--to", "gguf", "--dtype", "q8_0", "--out", "m.gguf", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["stored"], "q8_0");
  // The MLP is 48 wide.
  EXPECT_EQ(r.json()["notes"], nlohmann::json({"2 tensors in f16: q8_0 needs rows of a multiple of 32 elements."}));
  const GgufReader file(f.read("m.gguf"));
  EXPECT_EQ(file.tensor("blk.0.ffn_down.weight").type, 1u);
  const auto& up = file.tensor("blk.0.ffn_up.weight");
  EXPECT_EQ(up.type, 8u);
  const auto exact = weight("run", "model.layers.0.mlp.up_proj.weight");
  for (size_t i = 0; i < exact.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, up.bytes.data() + i / 32 * 34, 2);
    const float scale = to_float(float16{bits});
    const auto whole = int8_t(up.bytes[i / 32 * 34 + 2 + i % 32]);
    // Half a step, and the rounding of the scale to f16.
    ASSERT_LE(std::abs(float(whole) * scale - exact[i]), scale * (0.5f + 127 * std::ldexp(1.0f, -11))) << i;
  }
}

// By hand: the largest magnitude becomes 127, the others are rounded.
TEST(GgufFile, BlocksOfEightBits) {
  std::vector<float> x(64, 0.0f);
  x[0] = -2.54f, x[1] = 1.0f, x[2] = 0.011f, x[31] = 0.009f;
  uint8_t out[68];
  ASSERT_TRUE(store_values(GgufType::q8_0, x, out));
  const uint16_t scale = to_float16(0.02f).bits;
  EXPECT_EQ(out[0] | out[1] << 8, scale);
  EXPECT_EQ(int8_t(out[2]), -127);
  EXPECT_EQ(int8_t(out[3]), 50);
  EXPECT_EQ(int8_t(out[4]), 1);
  EXPECT_EQ(int8_t(out[33]), 0);
  for (size_t i = 34; i < 68; ++i) EXPECT_EQ(out[i], 0);
  x[40] = std::nanf("");
  EXPECT_FALSE(store_values(GgufType::q8_0, x, out));
  uint8_t half[2];
  const float large[] = {70000.0f};
  EXPECT_FALSE(store_values(GgufType::f16, large, half));
  EXPECT_TRUE(store_values(GgufType::bf16, large, half));
}

// Every parameter of every family has its place in a file, once.
TEST(GgufArchitecture, FamiliesOfTransformers) {
  const std::string after = "qk_norm = \"row\"\nnorm_position = \"after\"\n",
                    around =
                        "qk_norm = \"head\"\nnorm_position = \"both\"\nactivation = \"geglu\"\ntied = true\n"
                        "embedding_scale = 5.656854249492381\n";
  const std::map<std::string, std::string> families = {
      {"llama", byte_llama()},
      {"qwen2", byte_llama("qkv_bias = true\n")},
      {"qwen3", byte_llama("qk_norm = \"head\"\n")},
      {"smollm3", byte_llama("layers = 4\npattern = \"AAAB\"\n[layer.B]\nrope = false\n")},
      {"granite", byte_llama("embedding_scale = 3.0\nresidual_scale = 0.4\nattention_scale = 0.3\n")},
      {"starcoder2", byte_llama("norm = \"layer\"\nbias = true\nactivation = \"gelu\"\n")},
      {"phi3", byte_llama("family = \"phi3\"\n")},
      {"gptneox", byte_llama("kv_heads = 2\nnorm = \"layer\"\nbias = true\nactivation = \"gelu\"\nrotary_dim = 4\n")},
      {"stablelm", byte_llama("norm = \"layer\"\nnorm_bias = true\nrotary_dim = 4\n")},
      {"olmo2", byte_llama(after + "window = 5\npattern = \"AB\"\n[layer.B]\nwindow = 0\n")},
      {"gemma3", byte_llama(around + "window = 5\npattern = \"AB\"\n[layer.B]\nwindow = 0\nrope_theta = 5000\n")},
      {"gpt2", byte_model}};
  for (auto& [architecture, toml] : families) {
    SCOPED_TRACE(architecture);
    // Later keys replace earlier ones, which TOML forbids.
    std::map<std::string, std::string> keys;
    std::string text, tables;
    std::istringstream lines(toml);
    for (std::string line; std::getline(lines, line);) {
      if (!tables.empty() || line[0] == '[')
        tables += line + "\n";
      else
        keys[line.substr(0, line.find(' '))] = line + "\n";
    }
    for (auto& [key, line] : keys) text += line;
    const ModelConfig c = parse_model_toml(text + tables, architecture);
    ASSERT_EQ(gguf_lacks(c), "");
    EXPECT_EQ(name(*gguf_architecture(c)), architecture);
    int64_t elements = 0;
    std::set<std::string> names;
    for (auto& t : gguf_tensors(c)) {
      EXPECT_TRUE(names.insert(t.tensor.name).second) << t.tensor.name;
      if (!t.again) elements += t.tensor.elements();
    }
    EXPECT_EQ(elements, parameter_count(c));
    GgufHeader header;
    gguf_describe(c, header);
    const GgufReader file(header.bytes());
    EXPECT_EQ(file.metadata.at(architecture + ".block_count"), c.layers);
    EXPECT_EQ(file.metadata.contains(architecture + ".attention.sliding_window_pattern"),
              architecture == "olmo2" || architecture == "gemma3");
  }
}

TEST_F(Gguf, ModelsThatLlamaCppLacks) {
  struct Case {
    std::string keys, said;
  };
  const Case cases[] = {
      {"norm_weight = false\nembedding_norm = true\nqk_norm = \"head\"\nactivation = \"relu2\"\nlogit_cap = 15\n",
       "the architecture nanochat, which llama.cpp lacks"},
      {"qk_norm = \"head\"\nattention_bias = true\n", "the architecture qwen3 with a bias of attention's projection"},
      {"qk_norm = \"head\"\n[rope_scaling]\ntype = \"llama3\"\nfactor = 8\n", "rescaled as in Llama 3"},
      {"pattern = \"AB\"\n[layer.B]\nrope = false\n", "without rotation other than each fourth"},
      {"[rope_scaling]\ntype = \"yarn\"\nfactor = 2\nbeta_fast = 16\n", "beta_fast = 16"},
      {"residual_scale = 0.5\nnorm_position = \"both\"\n", "an architecture of its own"},
      {"norm = \"layer\"\nbias = true\nactivation = \"gelu_erf\"\n", "--other-gelu"},
      {"vocab = 200\n", "the tokenizer has 257 tokens, but the model has 200"}};
  for (auto& c : cases) {
    SCOPED_TRACE(c.said);
    std::string text = byte_llama(c.keys);
    if (c.keys.starts_with("vocab")) text.erase(text.find("vocab = 259\n"), 12);
    zero_model(text);
    expect_error({"export", "folder", "--to", "gguf", "--out", "m.gguf"}, 1, {c.said}, f.options());
    EXPECT_FALSE(f.exists("m.gguf"));
  }
  zero_model(byte_llama());
  ASSERT_EQ(run({"export", "folder", "--to", "gguf", "--out", "m.gguf"}).code, 0);
  const GgufReader file(f.read("m.gguf"));
  ASSERT_EQ(file.metadata.at("tokenizer.ggml.tokens").size(), 259u) << "two rows of the model have no token";
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.tokens")[258], "[PAD258]");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.token_type")[258], 5);
}

TEST_F(Gguf, TokenizersThatLlamaCppLacksAndFullDisks) {
  f.write("tiny.toml", byte_llama());
  train("run");
  const std::string place = "run/checkpoints/step-000001/tokenizer.json", whole = f.read(place);
  std::filesystem::create_directory(f / "model");
  for (const char* name : {"model.safetensors", "config.json"})
    std::filesystem::copy_file(f / ("run/checkpoints/step-000001/" + std::string(name)),
                               f / ("model/" + std::string(name)));
  expect_error({"export", "model", "--to", "gguf", "--out", "m.gguf"}, 1, {"has no tokenizer"}, f.options());
  nlohmann::json tokenizer = nlohmann::json::parse(whole);
  const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  auto split = [&](const std::string& pattern) {
    tokenizer["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}}, bytes}}};
    f.write("model/tokenizer.json", tokenizer.dump());
  };
  const std::string
      start = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)",
      end = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  split(start + R"(\s+\z|)" + end);
  expect_error({"export", "model", "--to", "gguf", "--out", "m.gguf"}, 1,
               {"the split rule cl100k, which llama.cpp lacks"}, f.options());
  split(start + end);
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  split(start + end);
  expect_error({"export", "model", "--to", "gguf", "--out", "m.gguf"}, 1, {"the normalizer Lowercase"}, f.options());
  tokenizer["normalizer"] = {{"type", "NFC"}};
  split(start + end);
  RunResult r = run({"export", "model", "--to", "gguf", "--out", "m.gguf", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.json()["notes"][0], "does not normalize text")) << r.out;
  EXPECT_EQ(GgufReader(f.read("m.gguf")).metadata.at("tokenizer.ggml.pre"), "dbrx");
  expect_error({"export", "model", "--to", "gguf", "--dtype", "q4_0"}, 2, {"--dtype", "f32, f16, bf16, q8_0"},
               f.options());
  // A disk that is full after 16 KiB.
  r = run({"export", "model", "--to", "gguf", "--out", "n.gguf"}, 16 << 10);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "n.gguf")) << r.err;
  for (auto& left : std::filesystem::directory_iterator(f.path()))
    EXPECT_FALSE(contains(left.path().filename().string(), "n.gguf")) << left.path();
}

TEST(Interop, LlamaCppWritesTheSameTokens) {
  CREST_NEED_PYTHON("numpy gguf xllamacpp");
  const std::string check = std::string(CREST_TEST_DIR) + "/../studies/peers/gguf_check.py";
  PythonResult r = run_python({check, "--crest", crest_binary(), "--models", "llama,gpt2", "--no-tokenizers"});
  EXPECT_EQ(r.code, 0) << r.output;
}
