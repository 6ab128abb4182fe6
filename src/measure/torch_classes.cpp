#include "measure/torch_classes.h"

#include <string_view>
#include <vector>

namespace crest {

namespace {

struct Row {
  OpClass op_class;
  std::vector<std::string_view> parts;  // any of them, in lower case
};

std::string lower(const std::string& text) {
  std::string out;
  for (char c : text) out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

bool contains_any(std::string_view name, const std::vector<std::string_view>& parts) {
  for (auto part : parts)
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

const Row* find(const std::vector<Row>& rows, std::string_view name) {
  for (auto& row : rows)
    if (contains_any(name, row.parts)) return &row;
  return nullptr;
}

// What operations and generated kernels are called after; the first row wins. A loss stands before the normalisations,
// as its log-softmax is one.
const std::vector<Row> topics = {
    {OpClass::communication, {"nccl", "c10d::", "gloo:", "all_reduce", "allreduce", "all_gather", "reduce_scatter"}},
    {OpClass::optimizer, {"adam", "multi_tensor_apply", "foreach", "optimizer.step", "optimizer.zero_grad"}},
    {OpClass::attention, {"flash", "fmha", "sdpa", "scaled_dot_product", "attention"}},
    {OpClass::loss, {"nll_loss", "cross_entropy", "log_softmax", "logsoftmax"}},
    {OpClass::normalisation,
     {"layer_norm", "layernorm", "rms_norm", "rmsnorm", "gammabeta", "group_norm", "batch_norm", "softmax"}},
    {OpClass::embedding, {"embedding"}},
};

// Kernels of libraries; cutlass and cuBLAS also stand in names of attention kernels, which are found before.
const std::vector<Row> libraries = {
    {OpClass::contraction,
     {"gemm", "gemv", "cutlass", "nvjet", "cublas", "xmma", "splitk", "triton_mm", "dot_kernel", "convolve"}},
    {OpClass::embedding, {"indexselect"}},
};

const std::vector<Row> generic_kernels = {
    {OpClass::elementwise, {"float16_copy", "gelu", "silu", "dropout"}},  // a cast is element-wise here
    {OpClass::movement, {"memcpy", "memset", "copy", "catarray", "transpose", "fillfunctor"}},
    {OpClass::reduction, {"reduce"}},
    {OpClass::elementwise, {"elementwise", "pointwise"}},
};

// Whole names of operations, without aten:: and a trailing underscore.
const std::vector<Row> operations = {
    {OpClass::contraction,
     {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "addmv", "mv", "dot", "einsum", "_scaled_mm",
      "linear_backward", "convolution", "convolution_backward"}},
    {OpClass::reduction, {"sum", "mean", "max", "min", "amax", "norm", "linalg_vector_norm", "argmax", "cumsum"}},
    {OpClass::movement,
     {"copy", "cat", "contiguous", "clone", "fill", "zero", "zeros", "to", "_to_copy", "stack", "_local_scalar_dense",
      "item"}},
    {OpClass::elementwise,
     {"add",
      "sub",
      "mul",
      "div",
      "neg",
      "gelu",
      "gelu_backward",
      "silu",
      "silu_backward",
      "relu",
      "threshold_backward",
      "tanh",
      "tanh_backward",
      "sigmoid",
      "pow",
      "sqrt",
      "rsqrt",
      "exp",
      "log",
      "where",
      "masked_fill",
      "tril",
      "triu",
      "native_dropout",
      "native_dropout_backward",
      "dropout",
      "bernoulli",
      "addcmul",
      "addcdiv",
      "lerp"}},
};

}  // namespace

std::optional<KernelClass> class_of_kernel(const std::string& full_name) {
  std::string name = lower(full_name);
  bool generated = name.rfind("triton_", 0) == 0;
  if (auto* row = find(topics, name)) return KernelClass{row->op_class, false};
  if (generated) {  // triton_KIND_fused_OPERATIONS: a template, pointwise, or a persistent or looping reduction
    if (name.rfind("triton_tem", 0) == 0 || name.rfind("triton_mm", 0) == 0)
      return KernelClass{OpClass::contraction, false};
    return KernelClass{name.rfind("triton_poi", 0) == 0 ? OpClass::elementwise : OpClass::reduction, false};
  }
  if (auto* row = find(libraries, name)) return KernelClass{row->op_class, false};
  if (auto* row = find(generic_kernels, name)) return KernelClass{row->op_class, true};
  return {};
}

std::optional<OpClass> class_of_operation(const std::string& full_name) {
  std::string name = lower(full_name);
  // Autograd's nodes only call operations.
  if (name.rfind("autograd::", 0) == 0 || name.rfind("torch::autograd", 0) == 0) return {};
  if (auto* row = find(topics, name)) return row->op_class;
  if (name.rfind("aten::", 0) != 0) return {};
  name.erase(0, 6);
  if (name.size() > 1 && name.back() == '_') name.pop_back();
  for (auto& row : operations)
    for (auto whole : row.parts)
      if (name == whole) return row.op_class;
  return {};
}

}  // namespace crest
