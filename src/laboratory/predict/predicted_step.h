// The predicted time of a step, whatever it is predicted from: what plan prints of each.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/compile.h"
#include "profile/profile.h"

namespace crest {

// What the collectives of a step were predicted from.
struct CollectivesSource {
  bool measured = false;      // by crest calibrate --ranks; else by the link of a data sheet
  int ranks = 0;              // between which they were measured; 0: nothing was predicted
  std::string library, date;  // of the measurement
  double factor = 1;          // they may be off by
};

struct PredictedStep {
  Profile profile;                         // the rows of the session with their predicted times
  double ms = 0, low_ms = 0, high_ms = 0;  // of a step, or of a forward pass; so are the rest
  int64_t tokens = 0;
  double model_flops = 0, executed_flops = 0;
  double peak = 0;  // FLOP/s in the recipe's precision, of all ranks; 0: unknown
  int ranks = 1;
  double collectives_ms = 0;  // of several ranks, part of ms
  CollectivesSource collectives;
  double transfers_ms = 0;  // to the host and back that nothing hides, part of ms
  ProfileRate host_link;    // that they were predicted with; 0: there are none

  double tokens_per_second() const { return 1e3 * double(tokens) / ms; }
};

// The rows of a step of the session, without times.
Profile step_rows(const CompiledSession& session);
// Sets the rows, tokens and FLOPs of a step of the session, or of the forward pass that it has
// instead.
void set_work(PredictedStep& step, const CompiledSession& session);

// docs/reference/contract.md, plan: the keys of `time` that every prediction has. measured_share:
// of the time, in kernels that a calibration measured.
nlohmann::ordered_json time_json(const PredictedStep& step, double measured_share);
// "time  7.85 ms (7.09 ms to 8.70 ms), ...", without an end of line.
std::string time_line(const PredictedStep& step);
// A line about several ranks; "" for one.
std::string ranks_line(const PredictedStep& step);
// A line about copies to the host and back; "" without.
std::string transfers_line(const PredictedStep& step);
// "1 step", "12.3k steps".
std::string count_of(double n, std::string_view noun);
// A line about a whole training; "" for no tokens.
std::string training_line(const PredictedStep& step, double total);

}  // namespace crest
