// Short names of device kernels.
#pragma once
#include <string>

namespace crest {

// "void crest::cuda::(anonymous namespace)::norm<float>(Args)" -> "norm<float>": drops the long
// parameter list; the rest distinguishes kernels.
std::string short_kernel(std::string name);

}  // namespace crest
