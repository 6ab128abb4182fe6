// The effect of --shard on a rank, for passes that sum and place gradients.
#pragma once
#include <set>

#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

// Each level includes the ones before it: ZeRO 1, 2 and 3 (Rajbhandari et al. 2020, section 5).
// From `gradients` on, gradients are summed over the ranks after every micro step. Only for passes
// up to `shard`; later passes read the Program's placements.
enum class Sharding : uint8_t { none, optimizer, gradients, weights };

// The ranks with the same weights, who share what --shard says, and what they put into a Program.
struct Copies {
  explicit Copies(const Recipe& recipe);
  int ranks;
  Axes axes;            // with several ranks
  Attrs attrs() const;  // of a collective between them
  Attrs with_axes(Attrs attrs) const;
  void place(Value& v, Placement placement) const;
};
// The storages of gradients of parameters that are on two pipeline stages. They are summed between
// the stages before the ranks sum them, after the last micro step. Until then they stay whole.
std::set<ValueId> gradients_of_two_stages(const Program& program);

// none with one rank.
Sharding sharding_of(const PassContext& context);
// Whether each bucket of parameters is a group: gradients and weights move bucket by bucket.
bool shards_in_buckets(const PassContext& context);
// The norm of all gradients is a sum of at most this many equal parts, so its bits do not depend on
// the division of work. There is one part for each rank, or with --deterministic for each micro
// step of one rank. Above most_norm_parts micro steps there is one part, because groups are padded
// to a multiple of their parts.
inline constexpr int64_t most_norm_parts = 64;
int64_t norm_parts(const PassContext& context);
// KIND.GROUP -> shard_KIND.GROUP
inline std::string shard_name(const std::string& group) { return "shard_" + group; }
// A rank's shard of a group. The group is or was whole elsewhere.
ValueId declare_shard(Builder& b, ValueId group, const Copies& copies);

}  // namespace crest
