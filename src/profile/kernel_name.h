// Names of device kernels as people read them.
#pragma once
#include <string>

namespace crest {

// "void crest::cuda::(anonymous namespace)::norm<float>(Args)" -> "norm<float>": parameter lists are long, and what
// stands before them tells kernels apart.
std::string short_kernel(std::string name);

}  // namespace crest
