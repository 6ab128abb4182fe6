// A small saved model of bytes.
#pragma once
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "run/small.h"

namespace crest::test {

inline Recipe byte_recipe(const std::string& shape = "gpt2") {
  Recipe r = small_recipe(shape);
  r.model.vocab = 257;
  return r;
}

// Saves a checkpoint of a byte-level model with lively weights below RUN/checkpoints; returns its
// folder. jinja: of its chat template.
inline std::string make_checkpoint(const std::string& run, int64_t step, const Recipe& recipe, bool tokenizer = true,
                                   bool zero_weights = false, const std::string& jinja = "") {
  SessionUse use;
  use.sampling = true;
  Runner r(recipe, use);
  if (!zero_weights) lively_weights(*r.executor, uint64_t(step));
  TensorsToSave tensors = tensors_to_save(*r.executor);
  Tokenizer bytes = Tokenizer::bytes();
  CheckpointContents c;
  c.step = step, c.weights = tensors.weights;
  c.files = model_files(recipe.model, {tokenizer ? &bytes : nullptr, jinja});
  std::filesystem::create_directories(run);
  return save_checkpoint(c, run + "/checkpoints", 0).path;
}

// FOLDER/text.txt with 400 lines, and a checkpoint of a byte-level model in FOLDER/run.
inline void make_model_and_text(const TemporaryFolder& folder) {
  make_checkpoint(folder / "run", 100, byte_recipe());
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  write_text(folder / "text.txt", text);
}

// The same text as a folder of tokens, FOLDER/NAME; returns its path.
inline std::string prepare_text(const TemporaryFolder& folder, const std::string& tokenizer, const std::string& name) {
  PrepareOptions p;
  p.inputs = {folder / "text.txt"};
  p.tokenizer = tokenizer;
  p.out = folder / name;
  prepare(p);
  return folder / name;
}

// A test with a folder of its own, and for all tests of the class the folder *shared_: the model
// in its run/, and its text as bytes in its data/.
class SavedModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    make_model_and_text(*shared_);
    prepare_text(*shared_, "bytes", "data");
  }
  static void TearDownTestSuite() { delete shared_; }

  TemporaryFolder folder_;
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace crest::test
