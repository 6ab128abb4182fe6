// Profiles of real Programs with made-up times: time = floor * slowdown(row), so every cause is
// known.
#pragma once
#include <functional>
#include <string>

#include "model/recipe.h"
#include "profile/profile.h"
#include "store/record.h"

namespace crest::test {

struct Synthetic {
  Recipe recipe;
  std::string device = "h200";
  std::function<double(const ProfileInstr&)> slowdown = [](const ProfileInstr&) { return 2.0; };
  double idle_ms = 0.002;  // idle after each instruction
  double residual_ms = 0;  // step time without an interval
  double noise = 0.002;    // relative, of the samples
  int samples = 20;
  double clock_mhz = 1980;
  double rate_factor = 1;  // of all rates: another device
};

Recipe recipe_of(const std::string& model, int64_t batch, int64_t seq);
// A step of gpt2-124M, 16 sequences of 1,024 tokens.
inline Synthetic gpt2() {
  Synthetic s;
  s.recipe = recipe_of("gpt2-124M", 16, 1024);
  return s;
}
Profile make_profile(const Synthetic& how);
// A record as `crest profile` keeps it.
RunRecord make_record(const Synthetic& how, const std::string& name = "run");
RunRecord record_of(const Profile& profile, const std::string& name = "run");

}  // namespace crest::test
