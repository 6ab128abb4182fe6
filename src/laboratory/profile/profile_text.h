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

// Shares by ProfileView::by in the order of ProfileView::sort; usage errors name --by and --sort.
std::vector<ProfileShare> profile_shares(const Profile& profile, const ProfileView& view);

// Lines of a label of `indent` columns and a text, each wrapped below its text.
std::string wrapped_lines(const std::string& lines, size_t indent, int width);

// Sections, each ending in a newline, in lines of at most view.width columns; the caller puts blank
// lines between them.
std::string profile_head(const Profile& profile, const ProfileView& view);     // what was measured, how, and its noise
std::string profile_ranks(const Profile& profile, const ProfileView& view);    // what each rank did; "" for one
std::string profile_times(const Profile& profile, const ProfileView& view);    // by phase, class and layer
std::string profile_table(const Profile& profile, const ProfileView& view);    // the largest rows; device kernels
std::string profile_summary(const Profile& profile, const ProfileView& view);  // shares and ratios
std::string profile_memory(const Profile& profile, const ProfileView& view);   // peak, holders, allocations, timeline
// Flags that would lower the peak: "" without alternatives. flops_per_token: FLOPs per token that
// the profiled recipe executes.
std::string profile_alternatives(const Profile& profile, const std::vector<Alternative>& alternatives,
                                 double flops_per_token, const ProfileView& view);

}  // namespace crest
