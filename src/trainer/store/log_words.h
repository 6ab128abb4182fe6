// The words of training logs: the quantity of a key, and the factor of a unit. One row each in
// log_words.cpp.
#pragma once
#include <string>

namespace crest {

enum class Quantity {
  none,
  step,
  loss,
  val_loss,
  lr,
  grad_norm,
  step_time,
  elapsed,  // since the start of training
  rate,     // tokens per second
  memory,
  mfu,
  steps_per_second,  // of the whole training
  skipped
};

struct LogKey {
  Quantity quantity = Quantity::none;
  double factor = 0;  // to milliseconds or bytes if the key includes the unit, else 0
};
// phrase: the words of the key in lower case, '_' between them ("tok/sec" is tok_sec).
LogKey log_key(const std::string& phrase);

struct LogUnit {
  enum Kind { none, percent, time, rate, bytes, other } kind = other;
  double factor = 1;  // to 1, milliseconds, tokens per second, bytes
};
// In lower case, as it follows the number; "": none.
LogUnit log_unit(const std::string& word);

// Words of loggers before a key.
bool is_log_noise(const std::string& word);

}  // namespace crest
