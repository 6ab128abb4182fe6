// Runs of the crest binary against a small hand-made run folder.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <map>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "crest_binary.h"
#include "data/tokenizer.h"
#include "run/small.h"

namespace crest::testing {

struct CommandResult {
  int code;
  std::string out, err;
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// `arguments` is shell text.
inline CommandResult run_crest(const std::string& arguments, const TemporaryFolder& folder) {
  std::string out = folder / "stdout", err = folder / "stderr";
  std::string command =
      "'" + std::string(test::crest_binary()) + "' " + arguments + " > '" + out + "' 2> '" + err + "'";
  int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_all(out), read_all(err)};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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
