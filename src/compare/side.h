// One of the two compared runs, opened: its profile, the samples of its step, the rows to join.
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
  Profile profile;  // when profiled
  // Of the profile (kernels that belong to no instruction are rows, too), or without times of the document "program".
  std::vector<ProfileInstr> rows;
  std::vector<double> step_ms;  // samples
  bool with_profiler = false;   // the samples were taken with the profiler on: there are no others
  ComparedRun run;

  // Sum of the rows, and what of it ran at the same time.
  double rows_ms() const;
  double overlap_ms() const;
};

ComparedSide open_side(const RunRecord& record, const std::string& title);

// Both ran on the same kind of device with as many threads.
bool same_device(const ComparedSide& a, const ComparedSide& b);

// Dimensions of a type such as "bf16[16,12,1024,1024]", and whether the last two of four are the sequence's length.
std::vector<int64_t> dimensions(const std::string& type);
bool is_quadratic(const std::string& type, const ComparedSide& side);

// Reads a key of an object that may be missing or of another type.
const Json* member(const Json& json, const std::string& key);
double number(const Json& json, const std::string& key, double otherwise = 0);
std::string string_at(const Json& json, const std::string& key);

}  // namespace crest
