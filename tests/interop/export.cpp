// crest export: the other programs' files, and their limits. Loading by nanoGPT is tested with
// torch (programs.cpp).
#include "checkpoint/safetensors_folder.h"
#include "cli/train_harness.h"
#include "core/dtype.h"
#include "data/tokenizer.h"
#include "interop/llmc.h"

using namespace crest;
using namespace crest::test;

namespace {

std::vector<float> floats(const std::string& folder, const std::string& name) {
  WeightsFolder weights = WeightsFolder::open(folder);
  int64_t at = weights.find(name);
  EXPECT_GE(at, 0) << name;
  std::vector<float> values(size_t(element_count(weights.tensors()[size_t(at)].spec)));
  weights.read(size_t(at), values.data(), values.size() * sizeof(float));
  return values;
}

class Export : public testing::Test {
 protected:
  RunResult run(const std::vector<std::string>& words) { return run_crest(words, f.options()); }
  void ok(const std::vector<std::string>& words) {
    RunResult r = run(words);
    ASSERT_EQ(r.code, 0) << words[0] << "\n" << r.err;
  }
  void train(const std::string& out) { ASSERT_EQ(f.train(out, 2, {"--quiet", "--sample-every", "0"}).code, 0); }
  std::string checkpoint(const std::string& run) { return f / (run + "/checkpoints/step-000002"); }
  TrainFolder f;
};

}  // namespace

TEST_F(Export, ALlmcCheckpointComesBackIdentical) {
  train("run");
  ok({"export", "run", "--to", "llm.c", "--out", "fp32"});
  ok({"import", "fp32/model.bin", "--out", "back"});
  ok({"export", "back", "--to", "llm.c", "--out", "again"});
  EXPECT_EQ(f.read("fp32/model.bin"), f.read("again/model.bin"));
  WeightsFolder back = WeightsFolder::open(f / "back");
  for (auto& item : back.tensors())
    EXPECT_EQ(floats(f / "back", item.spec.name), floats(checkpoint("run"), item.spec.name)) << item.spec.name;
  // In bf16 every weight is rounded once.
  ok({"export", "run", "--to", "llm.c", "--dtype", "bf16", "--out", "bf16"});
  ok({"import", "bf16/model.bin", "--out", "rounded"});
  auto exact = floats(checkpoint("run"), "transformer.wte.weight"),
       rounded = floats(f / "rounded", "transformer.wte.weight");
  ASSERT_EQ(exact.size(), rounded.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    char stored[2];
    store_element(stored, DType::bf16, 0, exact[i]);
    ASSERT_EQ(float(load_element(stored, DType::bf16, 0)), rounded[i]) << i;
  }
}

// Header of 256 int32: magic, version, tokens, end of text; then length and bytes of each token.
TEST_F(Export, LlmcGetsTheTokenizer) {
  train("run");
  RunResult r = run({"export", "run", "--to", "llm.c", "--out", "out", "--json"});
  EXPECT_EQ(r.json()["files"], nlohmann::json({"model.bin", "gpt2_tokenizer.bin"}));
  std::string file = f.read("out/gpt2_tokenizer.bin");
  const int32_t expected[] = {20240328, 2, 257, 256};
  EXPECT_EQ(file.substr(0, 16), std::string(reinterpret_cast<const char*>(expected), 16));
  ASSERT_EQ(file.size(), 1024u + 2 * 256 + 1 + Tokenizer::end_of_text_name.size());
  EXPECT_EQ(file.substr(1024 + 2 * 'a', 2),
            "\x01"
            "a");
  EXPECT_EQ(file.substr(1024 + 2 * 256 + 1), Tokenizer::end_of_text_name);
  // llm.c pads the vocabulary to a multiple of 128.
  uint8_t start[1024];
  std::string model = f.read("out/model.bin");
  std::memcpy(start, model.data(), sizeof start);
  LlmcHeader header = parse_llmc_header(start, model.size(), "model.bin");
  EXPECT_EQ(header.padded_vocab, 384);
  EXPECT_EQ(header.config.vocab, 257);
}

TEST_F(Export, ModelsThatTheProgramLacks) {
  struct Case {
    const char *keys, *to, *said;
  };
  const Case cases[] = {{"norm = \"rms\"", "llm.c", "RMSNorm, which llm.c lacks"},
                        {"position = \"rope\"", "nanogpt", "rotary positions, which nanoGPT lacks"},
                        {"activation = \"swiglu\"", "llm.c", "SwiGLU"},
                        {"tied = false", "nanogpt", "untied"},
                        {"bias = false", "llm.c", "layers without biases"},
                        {"activation = \"gelu_erf\"", "llm.c", "--other-gelu"},
                        {"", "nanogpt", "--other-gelu"},
                        {"norm_eps = 1e-6", "llm.c", "epsilon of 1e-06"}};
  for (auto& c : cases) {
    SCOPED_TRACE(c.said);
    f.write("tiny.toml", std::string(byte_model) + c.keys + "\n");
    std::filesystem::remove_all(f.path() / "run");
    train("run");
    expect_error({"export", "run", "--to", c.to, "--out", "out"}, 1, {c.said}, f.options());
    EXPECT_FALSE(std::filesystem::exists(f.path() / "out"));
  }
  std::filesystem::remove_all(f.path() / "run");
  std::string grouped = byte_model;
  grouped.replace(grouped.find("kv_heads = 2"), 12, "kv_heads = 1");
  f.write("tiny.toml", grouped);
  train("run");
  expect_error({"export", "run", "--to", "llm.c", "--out", "out"}, 1, {"grouped-query attention"}, f.options());
}

TEST_F(Export, TheOtherGeluWhereItIsAccepted) {
  train("run");
  RunResult r = run({"export", "run", "--to", "nanogpt", "--out", "out", "--other-gelu", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["format"], "nanogpt");
  auto notes = r.json()["notes"];
  EXPECT_EQ(notes[0],
            "nanoGPT computes GELU exactly; this model was trained with its tanh form. The logits will differ "
            "slightly.");
  EXPECT_NE(notes[2].get<std::string>().find("sample.py uses GPT-2's tokenizer"), std::string::npos) << notes;
  EXPECT_EQ(f.read("out/ckpt.pt").substr(0, 4), std::string("PK\x03\x04"));
}

TEST_F(Export, WrongUsage) {
  train("run");
  expect_error({"export"}, 2, {"no model"}, f.options());
  expect_error({"export", "run", "--run", "none", "--to", "llm.c", "--out", "out"}, 2, {"2 models"}, f.options());
  expect_error({"export", "run", "--to", "llm.c"}, 2, {"--out"}, f.options());
  expect_error({"export", "run", "--out", "out"}, 2, {"--to", "llm.c, nanogpt"}, f.options());
  expect_error({"export", "run", "--to", "nanoGPT", "--out", "out"}, 2, {"--to", "nanogpt"}, f.options());
  expect_error({"export", "run", "--to", "nanogpt", "--dtype", "bf16", "--out", "out"}, 2, {"--dtype", "fp32"},
               f.options());
  expect_error({"export", "run", "--to", "llm.c", "--dtype", "fp16", "--out", "out"}, 2, {"fp32, bf16"}, f.options());
  expect_error({"export", "none", "--to", "llm.c", "--out", "out"}, 1, {"no such run"}, f.options());
  expect_error({"export", "run", "--to", "llm.c", "--out", "data"}, 1, {"exists"}, f.options());
}
