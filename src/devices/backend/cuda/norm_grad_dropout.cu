// norm_grad with dropout of dx, for the projection before the residual sum.
#include "backend/cuda/norm_grad_rows.h"

namespace crest::cuda {

#if CREST_HAS_DEVICE_CODE
template <class T>
void launch_norm_grad_dropout(const KernelCall& c, const NormGrad<T>& p, const NormGradPlan& plan,
                              const NormGradOptions& options) {
  options.bias ? launch_norm_grad_rows<true, true>(c, p, plan, options)
               : launch_norm_grad_rows<false, true>(c, p, plan, options);
}

#define CREST_INSTANCE(T)                                                                               \
  template void launch_norm_grad_dropout<T>(const KernelCall&, const NormGrad<T>&, const NormGradPlan&, \
                                            const NormGradOptions&);
CREST_INSTANCE(float)
CREST_INSTANCE(bfloat16)
CREST_INSTANCE(float16)
#undef CREST_INSTANCE
#endif

}  // namespace crest::cuda
