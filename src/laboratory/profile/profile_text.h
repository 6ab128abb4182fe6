// A profile for the terminal: the output of `crest profile`.
#pragma once
#include <string>
#include <vector>

#include "plan/alternatives.h"
#include "profile/profile.h"

namespace crest {

struct ProfileView {
  size_t top = 15;            // rows per table
  std::string by = "place";   // place, instruction, kernel, class, layer, phase
  std::string sort = "time";  // time, gap, flops, bytes
  bool layers = false;        // one row per layer
  bool color = false;
  int width = 100;
};

// Shares by ProfileView::by, in the order of ProfileView::sort. Usage errors name --by and --sort.
std::vector<ProfileShare> profile_shares(const Profile& profile, const ProfileView& view);

// Lines of a label of `indent` columns and a text, wrapped below its start.
std::string wrapped_lines(const std::string& lines, size_t indent, int width);

// Sections of lines of at most view.width columns, each ending in a newline. The caller separates
// them by blank lines.
std::string profile_head(const Profile& profile, const ProfileView& view);  // what was measured, how, and its noise
std::string profile_ranks(const Profile& profile,
                          const ProfileView& view);  // how each rank spent its time; "" for one rank
std::string profile_times(const Profile& profile, const ProfileView& view);    // by phase, class and layer
std::string profile_table(const Profile& profile, const ProfileView& view);    // the largest rows; device kernels
std::string profile_summary(const Profile& profile, const ProfileView& view);  // shares and ratios
std::string profile_memory(const Profile& profile, const ProfileView& view);   // peak, holders, allocations, timeline
// Flags to lower the peak; "" without alternatives. flops_per_token: executed by the profiled
// recipe.
std::string profile_alternatives(const Profile& profile, const std::vector<Alternative>& alternatives,
                                 double flops_per_token, const ProfileView& view);

}  // namespace crest
