// The accuracy of a saved model in multiple-choice tasks: crest eval --tasks.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "inference/score_model.h"
#include "inference/task_file.h"

namespace crest {

// A share of right answers, with the standard error of lm-evaluation-harness: the sample's standard
// deviation / sqrt(n). NaN for one answer.
struct Accuracy {
  double value = 0, error = 0;
};
Accuracy accuracy(const std::vector<uint8_t>& right);

struct TaskScores {
  Task task;
  std::vector<std::vector<double>> logprobs;  // of each item's choices
  int64_t cut = 0;                            // texts cut at the left
  // By the log-likelihood, and by it divided by the characters or bytes of the choice.
  Accuracy plain, by_characters, by_bytes;
};

struct TaskEvaluation {
  std::string run, model;
  int64_t step = -1;  // of the checkpoint; -1 without one
  Recipe recipe;      // resolved
  Device device;
  int64_t context = 0, tokens = 0;  // scored tokens
  double seconds = 0;
  std::vector<TaskScores> tasks;
};

// Computes the accuracies from the log-likelihoods.
void judge(TaskScores& scores);
// message: receives lines for the user.
TaskEvaluation evaluate_tasks(const ScoreOptions& options, const LoadedModel& model, std::vector<Task> tasks,
                              const std::function<void(const std::string&)>& message);
// docs/reference/contract.md, eval.
nlohmann::ordered_json to_json(const TaskEvaluation& evaluation);

// The perplexity of a text as it is, by its own bytes: crest eval --text.
struct TextEvaluation {
  std::string run, model, file;
  int64_t step = -1;
  Recipe recipe;
  Device device;
  int64_t context = 0, tokens = 0;
  uint64_t bytes = 0;
  double logprob = 0;  // sum of ln p of all tokens
  double seconds = 0;
  double loss() const { return -logprob / double(tokens); }
  double perplexity() const;
  double bits_per_byte() const;
};
TextEvaluation evaluate_text(const ScoreOptions& options, const LoadedModel& model, const std::string& file,
                             const std::function<void(const std::string&)>& message);
nlohmann::ordered_json to_json(const TextEvaluation& evaluation);

}  // namespace crest
