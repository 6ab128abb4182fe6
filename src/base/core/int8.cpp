#include "core/int8.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>

namespace crest {

void quantize_row(const float* x, int64_t n, int8_t* q, float& scale) {
  uint32_t most = 0;  // bits of magnitudes are in the order of the magnitudes; NaN comes last
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  scale = std::bit_cast<float>(most) / int8_largest;
  if (!(scale >= FLT_MIN && scale <= FLT_MAX)) {
    scale = scale < FLT_MIN ? 0 : std::numeric_limits<float>::quiet_NaN();
    std::fill_n(q, n, int8_t(0));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    float rounded = (x[i] / scale + shift) - shift;
    q[i] = int8_t(std::clamp(rounded, float(-int8_largest), float(int8_largest)));
  }
}

void dequantize_row(const int8_t* q, float scale, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = float(q[i]) * scale;
}

}  // namespace crest
