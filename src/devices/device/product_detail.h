// Which algorithm of which library a chosen kernel of `linear` runs.
#pragma once
#include "backend/backend.h"
#include "backend/product_detail.h"

namespace crest {

// prepared: what the kernel's prepare() made, after its tune().
ProductDetail product_detail(const Kernel& kernel, const KernelQuery& query, const void* prepared);

}  // namespace crest
