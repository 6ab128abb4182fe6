// HMAC with SHA-256 (RFC 2104): proves that the sender of a message knows a secret.
#pragma once
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace crest {

Digest hmac_sha256(std::string_view secret, std::string_view message);

// Compares in a time independent of the place of a difference.
bool same_digest(std::string_view a, std::string_view b);

// `bytes` random bytes of the system as hexadecimal digits.
std::string random_hex(size_t bytes);

}  // namespace crest
