#include "backend/cpu/index.h"

#include "backend/cpu/communication.h"
#include "backend/cpu/fast_attention_index.h"
#include "backend/cpu/fast_gemm_index.h"
#include "backend/cpu/reference/index.h"

namespace crest {

std::vector<Kernel> cpu_kernels() {
  std::vector<Kernel> all;
  for (auto list : {cpu::cpu_gemm_kernels(), cpu_attention_kernels(), cpu_communication_kernels(), cpu_reference_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace crest
