// Output of crest data prepare and crest train TEXT while they prepare text.
#pragma once
#include <functional>
#include <string>

#include "core/timer.h"
#include "data/prepare.h"

namespace crest {

// Stages on standard error: one live line on a terminal, elsewhere one plain line for each stage.
class PreparationProgress {
 public:
  // silent_seconds: a shorter preparation shows no stages.
  explicit PreparationProgress(double silent_seconds = 0);
  ~PreparationProgress();
  PreparationProgress(const PreparationProgress&) = delete;
  PreparationProgress& operator=(const PreparationProgress&) = delete;
  // For PrepareOptions; this object must outlive them.
  std::function<void(const PrepareProgress&)> stages();
  std::function<void(const std::string&)> messages();
  void message(const std::string& text);

 private:
  void show(const PrepareProgress& p);
  void clear();
  bool live_, drawn_ = false;
  double silent_seconds_;
  std::string stage_, printed_;
  Timer since_begin_, in_stage_, since_shown_;
};

}  // namespace crest
