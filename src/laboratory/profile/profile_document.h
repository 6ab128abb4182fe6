// The output of `crest profile --json`: the profile (profile/profile.h) and derived figures.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "plan/alternatives.h"
#include "profile/profile.h"

namespace crest {

// flops_per_token: executed by the profiled recipe.
nlohmann::ordered_json profile_document(const Profile& profile, const std::vector<Alternative>& alternatives,
                                        double flops_per_token);

}  // namespace crest
