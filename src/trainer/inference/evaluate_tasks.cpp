#include "inference/evaluate_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "core/timer.h"
#include "data/file_kind.h"
#include "data/python_text.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t max_text_bytes = uint64_t(4) << 30;

// Of equal ones the first, as numpy.argmax.
bool best_is(const std::vector<double>& values, size_t answer) {
  return size_t(std::max_element(values.begin(), values.end()) - values.begin()) == answer;
}

Json number_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }

void add_accuracy(Json& to, const std::string& key, const Accuracy& a, bool known = true) {
  to[key] = known ? Json(a.value) : Json();
  to[key + "_stderr"] = known ? number_or_null(a.error) : Json();
}

template <class Evaluated>
Json head_of(const Evaluated& e) {
  return {{"device", e.device.kind},
          {"model", e.model},
          {"precision", e.recipe.precision},
          {"run", e.run},
          {"seconds", e.seconds},
          {"step", e.step >= 0 ? Json(e.step) : Json()},
          {"tokens", e.tokens},
          {"weights", e.recipe.pass_settings.at("weights")}};
}

}  // namespace

Accuracy accuracy(const std::vector<uint8_t>& right) {
  const auto n = double(right.size());
  const double mean = double(std::accumulate(right.begin(), right.end(), int64_t(0))) / n;
  double squares = 0;
  for (uint8_t r : right) squares += (r - mean) * (r - mean);
  return {mean, n > 1 ? std::sqrt(squares / (n - 1)) / std::sqrt(n) : std::nan("")};
}

void judge(TaskScores& s) {
  std::vector<uint8_t> plain, characters_right, bytes_right;
  for (size_t i = 0; i < s.logprobs.size(); ++i) {
    const TaskItem& item = s.task.items[i];
    const std::vector<double>& logprobs = s.logprobs[i];
    std::vector<double> by_characters, by_bytes;
    for (size_t c = 0; c < logprobs.size(); ++c) {
      by_characters.push_back(logprobs[c] / double(characters(item.choices[c])));
      by_bytes.push_back(logprobs[c] / double(item.choices[c].size()));
    }
    plain.push_back(best_is(logprobs, item.answer));
    characters_right.push_back(best_is(by_characters, item.answer));
    bytes_right.push_back(best_is(by_bytes, item.answer));
  }
  s.plain = accuracy(plain), s.by_characters = accuracy(characters_right), s.by_bytes = accuracy(bytes_right);
}

TaskEvaluation evaluate_tasks(const ScoreOptions& options, const LoadedModel& model, std::vector<Task> tasks,
                              const std::function<void(const std::string&)>& message) {
  std::vector<ScoredText> texts;
  std::vector<std::pair<size_t, size_t>> items;  // of each text: its task and item
  for (size_t t = 0; t < tasks.size(); ++t)
    for (size_t i = 0; i < tasks[t].items.size(); ++i)
      for (ScoredText& text : tasks[t].items[i].texts) {
        texts.push_back(std::move(text));
        items.emplace_back(t, i);
      }
  ModelScorer scorer(options, model, texts, [&](size_t number) {
    const Task& task = tasks[items[number].first];
    return place_of_line(printable(task.file), task.items[items[number].second].line);
  });
  TaskEvaluation out;
  out.run = options.run, out.model = model.config.name, out.step = model.step, out.recipe = scorer.recipe();
  out.device = options.device, out.context = scorer.context();
  Timer timer, since_message;
  size_t number = 0;
  for (const Task& task : tasks) {
    TaskScores scores;
    for (const TaskItem& item : task.items) {
      std::vector<double>& logprobs = scores.logprobs.emplace_back();
      for (size_t c = 0; c < item.texts.size(); ++c) {
        const Score score = scorer.score(number++);
        logprobs.push_back(score.logprob);
        out.tokens += score.tokens, scores.cut += score.cut > 0;
      }
      if (since_message.seconds() < 5) continue;
      since_message = {};
      message(fmt::format("{}: {} of {} questions", printable(task.name), scores.logprobs.size(), task.items.size()));
    }
    out.tasks.push_back(std::move(scores));
  }
  out.seconds = timer.seconds();
  for (size_t t = 0; t < tasks.size(); ++t) {
    out.tasks[t].task = std::move(tasks[t]);
    judge(out.tasks[t]);
  }
  return out;
}

Json to_json(const TaskEvaluation& e) {
  Json list = Json::array();
  for (const TaskScores& s : e.tasks) {
    Json task = {{"task", s.task.name},
                 {"layout", s.task.layout},
                 {"file", s.task.file},
                 {"n", s.logprobs.size()},
                 {"cut", s.cut}};
    add_accuracy(task, "acc", s.plain);
    add_accuracy(task, "acc_norm", s.by_characters, s.task.normalized);
    add_accuracy(task, "acc_bytes", s.by_bytes, s.task.normalized);
    Json samples = Json::array();
    for (size_t i = 0; i < s.logprobs.size(); ++i)
      samples.push_back(
          {{"line", s.task.items[i].line + 1}, {"answer", s.task.items[i].answer}, {"logprobs", s.logprobs[i]}});
    task["samples"] = std::move(samples);
    list.push_back(std::move(task));
  }
  Json json = head_of(e);
  json["tasks"] = std::move(list);
  return json;
}

double TextEvaluation::perplexity() const { return std::exp(loss()); }
double TextEvaluation::bits_per_byte() const { return -logprob / std::numbers::ln2 / double(bytes); }

TextEvaluation evaluate_text(const ScoreOptions& options, const LoadedModel& model, const std::string& file,
                             const std::function<void(const std::string&)>& message) {
  std::vector<ScoredText> texts(1);
  texts[0].continuation = read_file(file, max_text_bytes), texts[0].whole = true;
  const std::string& text = texts[0].continuation;
  if (text.empty()) fail("the file is empty", printable(file), "Give a file with text.");
  if (auto other = not_text(std::string_view(text).substr(0, kind_bytes), {}, file))
    fail("this is " + other->what, printable(file), other->advice);
  ModelScorer scorer(options, model, texts, [&](size_t) { return printable(file); });
  TextEvaluation out;
  out.run = options.run, out.model = model.config.name, out.file = file, out.step = model.step;
  out.recipe = scorer.recipe(), out.device = options.device, out.context = scorer.context(), out.bytes = text.size();
  Timer timer, since_message;
  const int64_t all = scorer.tokens(0);
  const Score score = scorer.score(0, [&](const Score& now) {
    if (since_message.seconds() < 5) return;
    since_message = {};
    message(fmt::format("{} of {} tokens, loss {:.4f}", now.tokens, all, -now.logprob / double(now.tokens)));
  });
  out.logprob = score.logprob, out.tokens = score.tokens, out.seconds = timer.seconds();
  return out;
}

Json to_json(const TextEvaluation& e) {
  Json json = head_of(e);
  json["bits_per_byte"] = e.bits_per_byte(), json["bytes"] = e.bytes, json["loss"] = e.loss();
  json["perplexity"] = e.perplexity(), json["seq"] = e.context, json["text"] = e.file;
  json["tokens_per_second"] = double(e.tokens) / e.seconds;
  return json;
}

}  // namespace crest
