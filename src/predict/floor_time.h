// The time of a step on a device that was not measured: the floors of its instructions by the rates
// of the data sheet, and what measured steps took above theirs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "profile/profile.h"

namespace crest {

struct FloorTime {
  Profile profile;      // the rows of a step, with their floors as times
  double floor_ms = 0;  // their sum
  double tiled_ms = 0;  // the same with whole tiles and whole waves of the matrix products
  // What a step is predicted to take, and its range: floors and calls, as measured steps were above
  // theirs.
  double ms = 0, low_ms = 0, high_ms = 0, factor = 1;
  bool known = false;                 // whether steps of this generation and precision were measured
  int64_t tokens = 0;                 // per step, or per forward pass
  double model_flops = 0;             // the same
  double executed_flops = 0;          // the same
  double peak = 0;                    // FLOP/s of the sheet in the recipe's precision; 0: it does not say
  double power = 0;                   // watts of the board; 0: the sheet does not say
  std::vector<std::string> replaced;  // rates that the sheet lacks, and what stands for them
  std::string sheet;                  // its title

  double tokens_per_second() const { return 1e3 * double(tokens) / ms; }
};

// Of steps that were measured (docs/guides/predict.md): an instruction takes so many times its
// floor, and a time for its call. A step may be off by a factor.
struct FloorScale {
  double attention, others;  // ms over floor_ms
  double ms_per_call;
  double known_factor;    // on the generation and in the precision of the measured steps
  double unknown_factor;  // elsewhere: an assumption
};
extern const FloorScale floor_scale;

FloorTime floor_time(const CompiledSession& session, const DataSheet& sheet);

// docs/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const FloorTime& time);
// A few lines. total: tokens of a whole training; 0: none given.
std::string text_of(const FloorTime& time, double total = 0);

}  // namespace crest
