#include "core/content_hash.h"

#define XXH_INLINE_ALL  // compiled in: no library is needed at run time
#include <fmt/format.h>
#include <xxhash.h>

namespace crest {

struct ContentHash::State {
  State() { XXH3_128bits_reset(&xxh3); }
  XXH3_state_t xxh3;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {}
ContentHash::~ContentHash() = default;

void ContentHash::update(const void* data, size_t bytes) { XXH3_128bits_update(&state_->xxh3, data, bytes); }

void ContentHash::reset() { XXH3_128bits_reset(&state_->xxh3); }

ContentHash::Digest ContentHash::digest() const {
  XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return {hash.low64, hash.high64};
}

std::string ContentHash::hex() const {
  const Digest hash = digest();
  return fmt::format("{:016x}{:016x}", hash[1], hash[0]);
}

}  // namespace crest
