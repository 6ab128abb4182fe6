// Ranges of NVTX: a watching tool (Nsight Systems) shows
// them above a thread's calls, and can record the kernels
// launched in one. Nothing is recorded without a tool.
#pragma once
#include <string>

namespace crest::cuda {

// Of an instruction: its kernel and where in the model it is: "cuda.linear.cublaslt h.3.attn.qkv".
std::string range_name(const std::string& kernel, const std::string& scope);

// In the domain "Crest". Ranges of a thread nest.
class Ranges {
 public:
  // Throws where this build has no NVTX.
  Ranges();
  void push(const std::string& name);
  void pop();

 private:
  [[maybe_unused]] void* domain_ = nullptr;  // where there is no NVTX
};

}  // namespace crest::cuda
