// What pass loss_chunk leaves in a Program.
#pragma once

namespace crest {

// A property of Programs with a chunked loss: the tokens of a chunk.
inline constexpr const char* loss_chunk_property = "loss_chunk";

}  // namespace crest
