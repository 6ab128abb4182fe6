// The algorithm and library behind a chosen kernel of `linear`.
#pragma once
#include "backend/backend.h"
#include "backend/product_detail.h"

namespace crest {

// prepared: the result of the kernel's prepare(), after its tune().
ProductDetail product_detail(const Kernel& kernel, const KernelQuery& query, const void* prepared);

}  // namespace crest
