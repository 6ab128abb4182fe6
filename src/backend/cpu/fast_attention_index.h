// The vector kernels of rows, pointwise bodies, attention and its data movement, best first within an operation.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest {
std::vector<Kernel> cpu_attention_kernels();
}
