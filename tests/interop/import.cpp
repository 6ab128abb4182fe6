// crest import: llm.c's and nanoGPT's checkpoints, whole and damaged.
#include <cmath>
#include <cstring>

#include "checkpoint/safetensors_folder.h"
#include "cli/run.h"
#include "core/dtype.h"
#include "core/error.h"
#include "interop/llmc.h"

using namespace crest;
using namespace crest::test;

namespace {

constexpr int32_t context = 8, vocab = 11, layers = 2, heads = 2, width = 8, padded = 16;

std::string words(std::vector<int32_t> header) {
  header.resize(256);
  return {reinterpret_cast<const char*>(header.data()), 1024};
}
std::vector<int32_t> good_header(int32_t version) {
  return {20240326, version, context, vocab, layers, heads, width, padded};
}
constexpr size_t llmc_numbers = (padded + context) * width + layers * (12 * width * width + 13 * width) + 2 * width;

// A vocabulary with room for the byte tokenizer.
std::string byte_level_file() {
  auto header = good_header(3);
  header[3] = 300, header[7] = 384;
  std::string file = words(header);
  for (size_t i = 0; i < llmc_numbers + (384 - padded) * width; ++i) {
    float value = float(i * 7919 % 257) / 257 - 0.5f;
    file.append(reinterpret_cast<const char*>(&value), 4);
  }
  return file;
}

// Weight i is i / 64: exact in fp32, and in bf16 up to 256.
std::string llmc_file(int32_t version) {
  std::string file = words(good_header(version));
  for (size_t i = 0; i < llmc_numbers; ++i) {
    float value = float(i % 256) / 64;
    if (version == 3) {
      file.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      char half[2];
      store_element(half, DType::bf16, 0, value);
      file.append(half, 2);
    }
  }
  return file;
}

std::vector<float> tensor(const std::string& folder, const std::string& name) {
  WeightsFolder weights = WeightsFolder::open(folder);
  int64_t at = weights.find(name);
  EXPECT_GE(at, 0) << name;
  if (at < 0) return {};
  auto& spec = weights.tensors()[size_t(at)].spec;
  std::vector<float> out(size_t(element_count(spec)));
  weights.read(size_t(at), out.data(), out.size() * 4);
  return out;
}

struct NanoOptions {
  std::string prefix = {};
  bool bias = false, head = true, other_head = false;
  std::map<std::string, std::string> metadata = {{"n_head", "2"}};
  std::string leave_out = {}, add = {};
};
void write_nanogpt(const std::string& path, const NanoOptions& o) {
  static std::vector<float> values(4096), others(4096, 0.5f);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  std::vector<TensorSource> list;
  auto add = [&](const std::string& name, std::vector<int64_t> shape, bool other = false) {
    if (name != o.leave_out)
      list.push_back({{o.prefix + name, DType::f32, shape}, other ? others.data() : values.data()});
  };
  add("transformer.wte.weight", {vocab, width});
  add("transformer.wpe.weight", {context, width});
  for (int l = 0; l < layers; ++l) {
    std::string h = "transformer.h." + std::to_string(l) + ".";
    for (auto [name, rows, columns] : {std::tuple{"attn.c_attn", 3 * width, width},
                                       {"attn.c_proj", width, width},
                                       {"mlp.c_fc", 4 * width, width},
                                       {"mlp.c_proj", width, 4 * width}}) {
      add(h + name + ".weight", {rows, columns});
      if (o.bias) add(h + name + ".bias", {rows});
    }
    for (const char* name : {"ln_1", "ln_2"}) {
      add(h + name + ".weight", {width});
      if (o.bias) add(h + name + ".bias", {width});
    }
    add(h + "attn.bias", {1, 1, context, context});
  }
  add("transformer.ln_f.weight", {width});
  if (o.bias) add("transformer.ln_f.bias", {width});
  if (o.head) add("lm_head.weight", {vocab, width}, o.other_head);
  if (!o.add.empty()) add(o.add, {width});
  write_safetensors(path, list, TensorOrder::canonical, o.metadata);
}

RunOptions in(const TempFolder& folder) { return {.folder = folder.path().string()}; }

}  // namespace

TEST(Import, LlmcGivesTransformersGpt2) {
  for (int32_t version : {3, 5}) {
    TempFolder folder;
    folder.write("gpt2.bin", llmc_file(version));
    RunResult r = run_crest({"import", "gpt2.bin", "--out", "model", "--json"}, in(folder));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.json()["format"], "llm.c");
    EXPECT_EQ(r.json()["stored"], version == 3 ? "f32" : "bf16");
    auto wte = tensor(folder / "model", "transformer.wte.weight"),
         wpe = tensor(folder / "model", "transformer.wpe.weight");
    EXPECT_EQ(wte.size(), size_t(vocab * width)) << "the padding is left out";
    EXPECT_EQ(wpe[0], float(padded * width % 256) / 64);
    // The second layer's c_attn: Conv1D has [in, out], the file [out, in].
    size_t start = size_t((padded + context) * width + 2 * layers * width + 3 * width * width);
    auto qkv = tensor(folder / "model", "transformer.h.1.attn.c_attn.weight");
    for (size_t row = 0; row < 3 * width; ++row)
      for (size_t column = 0; column < width; ++column)
        ASSERT_EQ(qkv[column * 3 * width + row], float((start + row * width + column) % 256) / 64);
    for (const char* file : {"config.json", "model.toml", "model.safetensors"})
      EXPECT_TRUE(std::filesystem::exists(folder / ("model/" + std::string(file)))) << file;
    RunResult sample = run_crest(
        {"sample", "--run", "model", "--tokens", "1,2,3", "--max-tokens", "4", "--device", "cpu"}, in(folder));
    EXPECT_EQ(sample.code, 0) << sample.err;
  }
}

// With a tokenizer the folder is complete: text in, text out, further training. eval's logits
// belong to its loss.
TEST(Import, FolderEvaluatesSamplesAndTrains) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "some words " + std::to_string(i * 31 % 97) + " of a text\n";
  folder.write("text.txt", text);
  folder.write("gpt2.bin", byte_level_file());
  auto run = [&](std::vector<std::string> arguments) {
    RunResult r = run_crest(arguments, in(folder));
    EXPECT_EQ(r.code, 0) << arguments[0] << "\n" << r.err;
    return r;
  };
  run({"data", "prepare", "text.txt", "--out", "data", "--val-fraction", "0.5"});
  run({"import", "gpt2.bin", "--out", "model", "--tokenizer", "data/tokenizer.json"});
  EXPECT_TRUE(std::filesystem::exists(folder / "model/tokenizer.json"));
  run({"sample", "--run", "model", "--prompt", "some", "--max-tokens", "4", "--device", "cpu"});
  run({"train", "--init", "model", "--data", "data", "--out", "run", "--steps", "1", "--batch", "1", "--device", "cpu",
       "--no-store", "--quiet", "--sample-every", "0"});
  double loss = run({"eval", "--run", "model", "--data", "data", "--batch", "1", "--batches", "1", "--seq", "7",
                     "--precision", "fp32", "--device", "cpu", "--logits", "logits.safetensors", "--json"})
                    .json()["loss"];
  SafetensorsFile file = SafetensorsFile::open(folder / "logits.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  std::vector<float> logits(7 * 300);
  std::vector<int32_t> tokens(7);
  file.read(size_t(file.find("logits")), logits.data(), logits.size() * 4);
  file.read(size_t(file.find("tokens")), tokens.data(), tokens.size() * 4);
  std::string shard = folder.read("data/val-000000.bin");
  double expected = 0;
  for (size_t t = 0; t < 7; ++t) {
    auto token = [&](size_t i) { return int32_t(uint8_t(shard[1024 + 2 * i])); };
    EXPECT_EQ(tokens[t], token(t));
    double sum = 0;
    for (size_t v = 0; v < 300; ++v) sum += std::exp(double(logits[t * 300 + v]));
    expected += (std::log(sum) - double(logits[t * 300 + size_t(token(t + 1))])) / 7;
  }
  EXPECT_NEAR(loss, expected, 1e-5 * expected);
}

TEST(Import, SaysWhatIsWrongWithAnLlmcFile) {
  auto header = [](size_t index, int32_t value, int32_t version = 3) {
    auto h = good_header(version);
    h[index] = value;
    return words(h);
  };
  std::string body = llmc_file(3).substr(1024);
  const std::vector<std::pair<std::string, std::string>> bad = {
      {header(0, 20240520) + body, "token data"},
      {header(0, 20240803) + body, "Llama 3"},
      {header(0, 1) + body, "not a checkpoint that Crest can import"},
      {header(1, 1) + body, "version 1"},
      {header(1, 5) + body, "bytes after the weights"},
      {header(2, 0) + body, "context = 0"},
      {header(3, -7) + body, "vocab = -7"},
      {header(3, 100) + body, "padded to 16"},
      {header(4, 2147483647) + body, "layers = 2147483647"},
      {header(4, 1024) + body, "the header describes"},
      {header(4, 4096) + body, "layers must be from 1 to 1024"},
      {header(5, 3) + body, "3 heads do not divide"},
      {header(5, 0) + body, "0 heads"},
      {header(6, 2147483646) + body, "out of range"},
      {header(6, -8) + body, "do not divide"},
      {header(7, 2147483647) + body, "padded to 2147483647"},
      {llmc_file(3).substr(0, 500), "cut short"},
      {llmc_file(3).substr(0, 4000), "cut short"},
      {llmc_file(3) + "x", "bytes after the weights"},
      {"", "not a checkpoint that Crest can import"},
  };
  TempFolder folder;
  for (auto& [content, said] : bad) {
    folder.write("bad.bin", content);
    expect_error({"import", "bad.bin", "--out", "model"}, 1, {said, "bad.bin"}, in(folder));
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  }
  size_t files = 0;
  for (auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.path().filename() != "cache";
  EXPECT_EQ(files, 1u) << "nothing is left behind";
}

TEST(Import, NanogptWithItsNamesAndOrientation) {
  TempFolder folder;
  write_nanogpt(folder / "plain.safetensors", {});
  RunResult r = run_crest({"import", "plain.safetensors", "--out", "plain", "--json"}, in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["format"], "nanoGPT");
  EXPECT_EQ(r.json()["tied"], true);
  EXPECT_EQ(r.json()["bias"], false);
  EXPECT_EQ(r.json()["transformers"], false) << "it has no GPT-2 without biases";
  EXPECT_EQ(tensor(folder / "plain", "h.0.attn.qkv.weight")[1], 1);

  write_nanogpt(folder / "compiled.safetensors", {.prefix = "_orig_mod.", .bias = true});
  r = run_crest({"import", "compiled.safetensors", "--out", "compiled", "--json"}, in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["transformers"], true);
  EXPECT_EQ(tensor(folder / "compiled", "transformer.h.0.attn.c_attn.weight")[3 * width], 1) << "transposed";

  write_nanogpt(folder / "untied.safetensors", {.bias = true, .other_head = true, .metadata = {}});
  expect_error({"import", "untied.safetensors", "--out", "untied"}, 2, {"--heads N"}, in(folder));
  r = run_crest({"import", "untied.safetensors", "--out", "untied", "--heads", "4", "--json"}, in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["tied"], false);
  EXPECT_EQ(r.json()["heads"], 4);
  EXPECT_EQ(tensor(folder / "untied", "lm_head.weight")[1], 0.5f);
  // nanoGPT's GELU is the exact one.
  EXPECT_NE(folder.read("compiled/model.toml").find("activation = \"gelu_erf\""), std::string::npos);
  EXPECT_NE(folder.read("compiled/config.json").find("\"activation_function\": \"gelu\""), std::string::npos);
}

TEST(Import, HeadsAreGivenOnlyWhereTheFileDoesNotStateThem) {
  TempFolder folder;
  write_nanogpt(folder / "nano.safetensors", {});
  folder.write("llmc.bin", llmc_file(3));
  for (const char* file : {"nano.safetensors", "llmc.bin"})
    expect_error({"import", file, "--out", "model", "--heads", "4"}, 2,
                 {"states 2 attention heads", "--heads 4", file, "Leave --heads out"}, in(folder));
  EXPECT_EQ(run_crest({"import", "nano.safetensors", "--out", "same", "--heads", "2"}, in(folder)).code, 0);
  write_nanogpt(folder / "bad.safetensors", {.metadata = {{"n_head", "many"}}});
  EXPECT_EQ(run_crest({"import", "bad.safetensors", "--out", "given one", "--heads", "4"}, in(folder)).code, 0);
  RunResult r = run_crest({"import", "llmc.bin", "--out", "a model"}, in(folder));
  EXPECT_NE(r.out.find("crest eval --run '" + (folder / "a model") + "' --data DIR"), std::string::npos) << r.out;
}

TEST(Import, SaysWhatIsWrongWithANanogptFile) {
  TempFolder folder;
  auto bad = [&](const NanoOptions& o, int code, const std::string& said) {
    write_nanogpt(folder / "bad.safetensors", o);
    expect_error({"import", "bad.safetensors", "--out", "model"}, code, {said, "bad.safetensors"}, in(folder));
  };
  bad({.leave_out = "transformer.h.1.mlp.c_fc.weight"}, 1, "transformer.h.1.mlp.c_fc.weight is missing");
  bad({.leave_out = "transformer.wpe.weight"}, 1, "transformer.wpe.weight is missing");
  bad({.leave_out = "transformer.h.0.attn.c_attn.weight"}, 1, "not from nanoGPT");
  bad({.add = "transformer.h.0.attn.rotary"}, 1, "transformer.h.0.attn.rotary is not part");
  bad({.metadata = {{"n_head", "many"}}}, 1, "'many'");
  bad({.metadata = {{"n_head", "3"}}}, 2, "3 heads do not divide");
}

TEST(Import, NeverOpensAPickle) {
  TempFolder folder;
  folder.write("ckpt.pt", std::string("PK\x03\x04", 4) + std::string(100, 'x'));
  folder.write("old.bin", std::string("\x80\x02}q", 4) + std::string(100, 'x'));
  folder.write("empty.ckpt", "");
  for (const char* file : {"ckpt.pt", "old.bin", "empty.ckpt"})
    expect_error({"import", file, "--out", "model"}, 1, {"pickle", "torch.load(", "weights_only=True", file},
                 in(folder));
}

TEST(Import, WrongUsage) {
  TempFolder folder;
  folder.write("gpt2.bin", llmc_file(3));
  expect_error({"import"}, 2, {"no checkpoint"}, in(folder));
  expect_error({"import", "gpt2.bin"}, 2, {"--out"}, in(folder));
  expect_error({"import", "nothing.bin", "--out", "m"}, 1, {"nothing.bin"}, in(folder));
  expect_error({"import", ".", "--out", "m"}, 1, {"--init"}, in(folder));
  expect_error({"import", "gpt2.bin", "--out", "."}, 1, {"exists"}, in(folder));
  expect_error({"import", "gpt2.bin", "--out", "m", "--tokenizer", "gpt2.bin"}, 1, {"gpt2.bin"}, in(folder));
}
