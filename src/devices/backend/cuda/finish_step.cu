// Step counters and the dynamic loss scale: one thread.
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

struct Rules {
  bool dynamic;
  int64_t growth_interval;
  float min_scale, max_scale;
};

__global__ void finish_step(Scalars* s, Rules rules) {
  wait_for_predecessors();
  if (s->found_inf) {
    ++s->skipped;
    s->good_steps = 0;
    if (rules.dynamic) s->loss_scale = fmaxf(s->loss_scale / 2, rules.min_scale);
    return;
  }
  ++s->adam_step;
  ++s->good_steps;
  if (rules.dynamic && s->good_steps == rules.growth_interval) {
    s->loss_scale = fminf(2 * s->loss_scale, rules.max_scale);
    s->good_steps = 0;
  }
}

void launch_finish_step(const KernelCall& c) {
  const Attrs& a = c.instr.attrs;
  Rules rules = {};  // a static loss scale has no other attributes
  if (a.integer("dynamic"))
    rules = {true, a.integer("growth_interval"), float(a.number("min_scale")), float(a.number("max_scale"))};
  launch(c, finish_step, 1, 1, 0, c.output<Scalars>(out::finish_step::scalars), rules);
}

std::string accept(const KernelQuery&) { return ""; }

}  // namespace

Kernel finish_step_kernel() {
  return {"finish_step", "cuda.finish_step", accept, nullptr, nullptr, CREST_DEVICE_CODE(launch_finish_step)};
}

}  // namespace crest::cuda
