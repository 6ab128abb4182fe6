// How much longer the tiles of an attention take than its FLOPs.
#pragma once
#include <cstdint>

#include "profile/profile.h"

namespace crest {

// The shape of an attention whose kernel works in known tiles: on Hopper, in 16-bit floats. Else
// unknown.
AttentionShape tiled_attention(const ProfileInstr& row);

// Time of the attention in tiles over the time of its FLOPs. Tiles on the diagonal take as long as
// whole ones. Few tiles leave multiprocessors idle, and the longest ones take longer than the mean.
// multiprocessors 0: unknown, none is ever idle.
double tile_factor(const AttentionShape& shape, int64_t multiprocessors);

}  // namespace crest
