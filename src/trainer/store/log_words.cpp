#include "store/log_words.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/text.h"

namespace crest {

LogKey log_key(const std::string& phrase) {
  static const std::vector<std::pair<LogKey, const char*>> rows = {
      {{Quantity::step, 0}, "step steps s iter iteration it global_step train_step training_step iter_num"},
      {{Quantity::loss, 0}, "loss train_loss training_loss lm_loss loss_train trl train"},
      {{Quantity::val_loss, 0}, "val val_loss valid_loss validation_loss eval_loss loss_val tel"},
      {{Quantity::lr, 0}, "lr learning_rate"},
      {{Quantity::grad_norm, 0}, "norm grad_norm gradnorm gnorm gradient_norm norm_gradient"},
      {{Quantity::step_time, 0}, "dt time took step_time iter_time iteration_time time_per_step"},
      {{Quantity::step_time, 1}, "step_ms dt_ms time_ms step_time_ms iter_time_ms ms_per_step ms_step"},
      {{Quantity::step_time, 1000}, "dt_s step_time_s iter_time_s seconds_per_step"},
      {{Quantity::elapsed, 0}, "train_time"},
      {{Quantity::rate, 0},
       "tok_s tok_sec toks_s toks_sec tokens_s tokens_sec tok_per_sec tokens_per_sec tokens_per_second"},
      {{Quantity::memory, 0},
       "mem memory max_mem max_memory peak_mem peak_memory gpu_mem gpu_memory vram mem_peak_alloc max_memory_allocated "
       "peak_memory_allocated"},
      {{Quantity::memory, 1}, "memory_bytes peak_memory_bytes"},
      {{Quantity::memory, 1e6}, "mem_mb memory_mb peak_mem_mb peak_memory_mb"},
      {{Quantity::memory, 1e9}, "mem_gb memory_gb peak_mem_gb peak_memory_gb"},
      {{Quantity::mfu, 0}, "mfu"},
      {{Quantity::steps_per_second, 0}, "train_steps_per_second"},
      {{Quantity::skipped, 0}, "skipped"},
  };
  static const std::map<std::string, LogKey> keys = [] {
    std::map<std::string, LogKey> all;
    for (auto& [key, words] : rows)
      for (auto& word : split(words, ' ')) all[word] = key;
    return all;
  }();
  auto found = keys.find(phrase);
  return found == keys.end() ? LogKey() : found->second;
}

LogUnit log_unit(const std::string& word) {
  static const std::map<std::string, LogUnit> units = {
      {"", {LogUnit::none, 1}},           {"%", {LogUnit::percent, 0.01}},   {"us", {LogUnit::time, 1e-3}},
      {"ms", {LogUnit::time, 1}},         {"s", {LogUnit::time, 1e3}},       {"sec", {LogUnit::time, 1e3}},
      {"secs", {LogUnit::time, 1e3}},     {"seconds", {LogUnit::time, 1e3}}, {"tok/s", {LogUnit::rate, 1}},
      {"tok/sec", {LogUnit::rate, 1}},    {"toks/s", {LogUnit::rate, 1}},    {"tokens/s", {LogUnit::rate, 1}},
      {"tokens/sec", {LogUnit::rate, 1}}, {"ktok/s", {LogUnit::rate, 1e3}},  {"k", {LogUnit::rate, 1e3}},
      {"m", {LogUnit::rate, 1e6}},        {"b", {LogUnit::bytes, 1}},        {"bytes", {LogUnit::bytes, 1}},
      {"kb", {LogUnit::bytes, 1e3}},      {"kib", {LogUnit::bytes, 0x1p10}}, {"mb", {LogUnit::bytes, 1e6}},
      {"mib", {LogUnit::bytes, 0x1p20}},  {"gb", {LogUnit::bytes, 1e9}},     {"gib", {LogUnit::bytes, 0x1p30}}};
  auto found = units.find(word);
  return found == units.end() ? LogUnit() : found->second;
}

bool is_log_noise(const std::string& word) {
  static const std::vector<std::string> noise = {"info", "debug", "warning", "train", "training", "trainer", "log"};
  return std::find(noise.begin(), noise.end(), word) != noise.end();
}

}  // namespace crest
