#pragma once
#include <vector>

#include "backend/backend.h"

namespace crest {
std::vector<Kernel> cpu_communication_kernels();
}
