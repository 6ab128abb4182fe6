// What passes and kernels of 8-bit matmuls share.
#pragma once
#include <cstdint>

namespace crest {

// Rows of operands begin at multiples of 16 bytes (cuBLASLt requires it), so the features of a
// linear layer that runs in fp8 are multiples of 16. Rows of tokens need not be: transposes are
// padded with zeros.
inline constexpr int64_t fp8_multiple = 16;
int64_t fp8_padded(int64_t rows);

}  // namespace crest
