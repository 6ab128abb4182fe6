// The effect of --shard on a rank, for the passes that sum gradients and place them.
#pragma once
#include <set>

#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

// Each level includes the levels before it: ZeRO 1, 2 and 3 (Rajbhandari et al. 2020, section 5).
// From `gradients` on, gradients are summed over the ranks after every micro step. For passes up to
// `shard`; later passes read the placements of the Program.
enum class Sharding : uint8_t { none, optimizer, gradients, weights };

// The storages of gradients of parameters that are on two pipeline stages. They are summed between
// the stages before the ranks sum them, after the last micro step. Until then they stay whole.
std::set<ValueId> gradients_of_two_stages(const Program& program);

// none with one rank.
Sharding sharding_of(const PassContext& context);
// Whether each bucket of parameters is a group: gradients and weights travel bucket by bucket.
bool shards_in_buckets(const PassContext& context);
// The norm of all gradients is summed in this many equal parts, so its bits do not depend on the
// division of the work: one part for each rank, or with --deterministic one for each micro step of
// one rank. Above most_norm_parts micro steps there is one part, since groups are padded for their
// parts.
inline constexpr int64_t most_norm_parts = 64;
int64_t norm_parts(const PassContext& context);
// Of a group KIND.GROUP: shard_KIND.GROUP.
inline std::string shard_name(const std::string& group) { return "shard_" + group; }
// A rank's shard of a group. The group is or was whole elsewhere.
ValueId declare_shard(Builder& b, ValueId group, int ranks);

}  // namespace crest
