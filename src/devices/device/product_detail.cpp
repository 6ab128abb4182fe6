#include "device/product_detail.h"

#include <string_view>

#include "backend/cpu/linear.h"
#include "backend/cuda/cublaslt_detail.h"

namespace crest {

ProductDetail product_detail(const Kernel& kernel, const KernelQuery& query, const void* prepared) {
  ProductDetail detail;
  detail.kernel = kernel.name;
  if (kernel.workspace) detail.reserved_workspace = int64_t(kernel.workspace(query));
  std::string_view name = kernel.name;
  if (name == "cpu.linear.onednn")
    cpu::describe_onednn(query, detail);
  else if (prepared && name.ends_with("cublaslt"))
    cuda::describe_cublaslt(prepared, detail);
  else  // Crest's own kernels use all the memory they request
    detail.requested_workspace = detail.reserved_workspace;
  return detail;
}

}  // namespace crest
