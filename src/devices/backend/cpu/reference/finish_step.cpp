// Step counters and the dynamic loss scale.
#include <algorithm>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void finish_step(const KernelCall& c) {
  Scalars s = scalars(c, in::finish_step::scalars);
  const Attrs& a = c.instr.attrs;
  bool dynamic = a.integer("dynamic", 0);
  if (s.found_inf) {
    s.skipped += 1;
    s.good_steps = 0;
    if (dynamic) s.loss_scale = std::max(s.loss_scale / 2, float(a.number("min_scale")));
  } else {
    s.adam_step += 1;
    s.good_steps += 1;
    if (dynamic && s.good_steps == a.integer("growth_interval")) {
      s.loss_scale = std::min(2 * s.loss_scale, float(a.number("max_scale")));
      s.good_steps = 0;
    }
  }
  *c.output<Scalars>(out::finish_step::scalars) = s;
}

}  // namespace crest::reference
