// Names that the passes of sharding and their readers agree on.
#pragma once
#include <string>

namespace crest {

// A rank's share of the gradients, or of the weights, of a group.
inline std::string share_name(const std::string& group) { return group + ".share"; }

// A property of Programs whose weights exist as shares: the number of shares.
inline constexpr const char* weight_shares_property = "weight_shares";

// A property of update Programs whose states exist as shares: the number of shares.
inline constexpr const char* shares_property = "shares";

}  // namespace crest
