// The loss of a saved model on prepared data: crest eval.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checkpoint/weights_io.h"
#include "inference/decoding_session.h"
#include "run/evaluate.h"

namespace crest {

struct EvaluateOptions : DecodingOptions {
  std::string run;   // the name of the model
  std::string data;  // "": the data it was trained on
  std::string split = "val", packing;
  std::string logits;                       // a file to write; "": none
  int64_t batches = 0, batch = 8, seq = 0;  // 0: all; as in training
};

struct ModelEvaluation {
  std::string run, data, split;
  Recipe recipe;      // resolved
  int64_t step = -1;  // of the checkpoint; -1 without one
  Device device;
  Evaluation evaluation;
  uint64_t split_tokens = 0;
  bool masked = false;  // the split has a loss mask
  double seconds = 0;
  double tokens_per_second() const { return double(evaluation.read) / seconds; }
};

// Throws for a wrong option, before anything is opened.
void validate(const EvaluateOptions& options);
// Missing options (data, seq, packing) are as in training. The logits of the split's first window
// are written before the evaluation. message: receives lines for the user.
ModelEvaluation evaluate_model(EvaluateOptions options, const LoadedModel& model,
                               const std::function<void(const std::string&)>& message);
// docs/reference/contract.md, eval.
nlohmann::ordered_json to_json(const ModelEvaluation& evaluation);

}  // namespace crest
