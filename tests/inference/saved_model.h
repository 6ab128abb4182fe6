// A small saved model of bytes.
#pragma once
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "data/tokenizer.h"
#include "run/small.h"

namespace crest::testing {

inline Recipe byte_recipe(const std::string& shape = "gpt2") {
  Recipe r = small_recipe(shape);
  r.model.vocab = 257;
  return r;
}

// Saves a checkpoint of a byte-level model with lively weights below RUN/checkpoints; returns its
// folder.
inline std::string make_checkpoint(const std::string& run, int64_t step, const Recipe& recipe, bool tokenizer = true,
                                   bool zero_weights = false) {
  SessionUse use;
  use.sampling = true;
  Runner r(recipe, use);
  if (!zero_weights) lively_weights(*r.executor, uint64_t(step));
  TensorsToSave tensors = tensors_to_save(*r.executor);
  Tokenizer bytes = Tokenizer::bytes();
  CheckpointContents c;
  c.step = step, c.weights = tensors.weights;
  c.files = model_files(recipe.model, tokenizer ? &bytes : nullptr);
  std::filesystem::create_directories(run);
  return save_checkpoint(c, run + "/checkpoints", 0).path;
}

}  // namespace crest::testing
