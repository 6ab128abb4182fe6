// Names that the passes of sharding and their readers agree on.
#pragma once
#include <string>

namespace crest {

// A rank's shard of the gradients, or of the weights, of a group.
inline std::string shard_name(const std::string& group) { return group + ".share"; }

// A property of Programs whose weights exist as shards: the number of shards.
inline constexpr const char* weight_shards_property = "weight_shares";

// A property of update Programs whose states exist as shards: the number of shards.
inline constexpr const char* shards_property = "shares";

}  // namespace crest
