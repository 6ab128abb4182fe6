// One side of a comparison: its profile, step samples, and rows to match.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.h"
#include "profile/profile.h"

namespace crest {

struct ComparedSide {
  const RunRecord* record = nullptr;
  Json recipe, device, environment;
  bool profiled = false;
  Profile profile;  // if profiled
  // From the profile (kernels outside instructions are rows too), or, without times, from the
  // document "program".
  std::vector<ProfileInstr> rows;
  std::vector<double> step_ms;  // samples
  bool with_profiler = false;   // all samples were taken with the profiler on
  ComparedRun run;

  // The sum of the rows, and its overlapped part.
  double rows_ms() const;
  double overlap_ms() const;
};

ComparedSide open_side(const RunRecord& record, const std::string& title);

// Both ran on the same kind of device with the same number of threads.
bool same_device(const ComparedSide& a, const ComparedSide& b);

// Whether the last two dimensions of four equal the sequence length: "bf16[16,12,1024,1024]".
bool is_quadratic(const std::string& type, const ComparedSide& side);

// Reads a key that may be missing or have another type.
const Json* member(const Json& json, const std::string& key);
double number(const Json& json, const std::string& key, double otherwise = 0);
std::string string_at(const Json& json, const std::string& key);

}  // namespace crest
