// What --shard leaves on a rank: read by the passes that sum gradients and place them.
#pragma once
#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

// Each level includes those before it: ZeRO 1, 2 and 3 (Rajbhandari et al. 2020, section 5). From
// `gradients` on, gradients are summed over the ranks after every micro step. For passes up to
// `shard`; later ones read the placements of the Program.
enum class Sharding : uint8_t { none, optimizer, gradients, weights };

// none with one rank.
Sharding sharding_of(const PassContext& context);
// Whether each bucket of parameters is a group: gradients and weights travel bucket by bucket.
bool shards_in_buckets(const PassContext& context);
// The norm of all gradients is summed in this many equal parts, so that its bits do not depend on
// how the work is divided: one for each rank, or with --deterministic one for each micro step of
// one rank. More micro steps than most_norm_parts count as one: groups are padded for their parts.
inline constexpr int64_t most_norm_parts = 64;
int64_t norm_parts(const PassContext& context);
// Of a group KIND.GROUP: shard_KIND.GROUP.
inline std::string shard_name(const std::string& group) { return "shard_" + group; }
// A value with a rank's shard of a group that is whole elsewhere, or was.
ValueId declare_shard(Builder& b, ValueId group, int ranks);

}  // namespace crest
