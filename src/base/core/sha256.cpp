#include "core/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace crest {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
alignas(16) static constexpr uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t load_big_endian(const uint8_t* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
}

// FIPS 180-4, 6.2.2.
static void rounds_portable(uint32_t* state, const uint8_t* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = load_big_endian(blocks + 4 * t);
    for (int t = 16; t < 64; ++t) {
      uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t v[8];
    std::copy(state, state + 8, v);
    auto& [a, b, c, d, e, f, g, h] = v;
    for (int t = 0; t < 64; ++t) {
      uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
      uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#if defined(__x86_64__)
#define CREST_SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

struct ShaRegisters {
  __m128i abef, cdgh;
};

// Four rounds with the schedule words w0; then w0 becomes the words of sixteen rounds later.
CREST_SHA_TARGET static inline void four_rounds(ShaRegisters& s, int round, __m128i& w0, __m128i w1, __m128i w2,
                                                __m128i w3) {
  __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(round_constants + round));
  __m128i wk = _mm_add_epi32(w0, k);
  s.cdgh = _mm_sha256rnds2_epu32(s.cdgh, s.abef, wk);
  s.abef = _mm_sha256rnds2_epu32(s.abef, s.cdgh, _mm_shuffle_epi32(wk, 0x0e));
  if (round < 48) {
    __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    w0 = _mm_sha256msg2_epu32(next, w3);
  }
}

CREST_SHA_TARGET static void rounds_sha_ni(uint32_t* state, const uint8_t* blocks, size_t count) {
  const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  // The instructions hold the state as (A, B, E, F) and (C, D, G, H), highest word first.
  ShaRegisters s{_mm_set_epi32(int(state[0]), int(state[1]), int(state[4]), int(state[5])),
                 _mm_set_epi32(int(state[2]), int(state[3]), int(state[6]), int(state[7]))};
  for (; count > 0; --count, blocks += 64) {
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)), swap);
    ShaRegisters before = s;
    for (int round = 0; round < 64; round += 16) {
      four_rounds(s, round, w[0], w[1], w[2], w[3]);
      four_rounds(s, round + 4, w[1], w[2], w[3], w[0]);
      four_rounds(s, round + 8, w[2], w[3], w[0], w[1]);
      four_rounds(s, round + 12, w[3], w[0], w[1], w[2]);
    }
    s.abef = _mm_add_epi32(s.abef, before.abef);
    s.cdgh = _mm_add_epi32(s.cdgh, before.cdgh);
  }
  alignas(16) uint32_t x[4], y[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(x), s.abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(y), s.cdgh);
  state[0] = x[3], state[1] = x[2], state[4] = x[1], state[5] = x[0];
  state[2] = y[3], state[3] = y[2], state[6] = y[1], state[7] = y[0];
}

static bool has_sha_instructions() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#endif

Sha256::Sha256(bool use_instructions)
    : rounds_(rounds_portable),
      // FIPS 180-4, 5.3.3.
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  static const bool available = has_sha_instructions();
  if (use_instructions && available) rounds_ = rounds_sha_ni;
#else
  (void)use_instructions;
#endif
}

void Sha256::update(const void* data, size_t bytes) {
  auto* p = static_cast<const uint8_t*>(data);
  total_ += bytes;
  if (filled_ > 0) {
    size_t take = std::min(bytes, 64 - filled_);
    std::memcpy(block_ + filled_, p, take);
    filled_ += take, p += take, bytes -= take;
    if (filled_ < 64) return;
    rounds_(state_.data(), block_, 1);
    filled_ = 0;
  }
  rounds_(state_.data(), p, bytes / 64);
  filled_ = bytes % 64;
  if (filled_ > 0) std::memcpy(block_, p + (bytes - filled_), filled_);
}

Digest Sha256::digest() {
  uint64_t bits = total_ * 8;
  uint8_t padding[72] = {0x80};
  size_t zeros = (filled_ < 56 ? 56 : 120) - filled_;
  for (int i = 0; i < 8; ++i) padding[zeros + size_t(i)] = uint8_t(bits >> (56 - 8 * i));
  update(padding, zeros + 8);
  Digest out;
  for (size_t i = 0; i < 32; ++i) out[i] = uint8_t(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

Digest sha256(const void* data, size_t bytes) {
  Sha256 hash;
  hash.update(data, bytes);
  return hash.digest();
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

std::string sha256_hex(const void* data, size_t bytes) { return to_hex(sha256(data, bytes)); }

}  // namespace crest
