#include "core/hmac.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace crest {

Digest hmac_sha256(std::string_view secret, std::string_view message) {
  constexpr size_t block = 64;
  uint8_t key[block] = {};
  if (secret.size() > block) {
    Digest hashed = sha256(secret.data(), secret.size());
    std::copy(hashed.begin(), hashed.end(), key);
  } else {
    std::copy(secret.begin(), secret.end(), key);
  }
  auto padded = [&](uint8_t pad, const void* data, size_t bytes) {
    uint8_t first[block];
    for (size_t i = 0; i < block; ++i) first[i] = key[i] ^ pad;
    Sha256 hash;
    hash.update(first, block);
    hash.update(data, bytes);
    return hash.digest();
  };
  Digest inner = padded(0x36, message.data(), message.size());
  return padded(0x5c, inner.data(), inner.size());
}

bool same_digest(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) different = different | static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  if (::getrandom(raw.data(), bytes, 0) != ssize_t(bytes)) fail("the system provides no random numbers", "getrandom");
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char c : raw) text += digits[c >> 4], text += digits[c & 15];
  return text;
}

}  // namespace crest
