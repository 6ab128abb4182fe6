// Operation classes (ops/op.h) of PyTorch's kernels and operations, by name.
#pragma once
#include <optional>
#include <string>

#include "ops/op.h"

namespace crest {

struct KernelClass {
  OpClass op_class;
  bool
      generic;  // an element-wise, reducing or copying kernel: what it serves is said by the operation that launched it
};

// By the name of a device kernel: of PyTorch, cuBLAS, cuDNN, NCCL, or made by Inductor.
std::optional<KernelClass> class_of_kernel(const std::string& name);
// By the name of an operation or annotation; nothing for those that only pass on (views, autograd's nodes).
std::optional<OpClass> class_of_operation(const std::string& name);

}  // namespace crest
