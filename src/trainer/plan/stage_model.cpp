#include "plan/stage_model.h"

#include <algorithm>
#include <numeric>

#include "model/gpt_layers.h"
#include "passes/stages.h"

namespace crest {

// The layer before a stage makes what it receives, and the layer behind reads what it sends. The
// pass keeps the caches of all layers, so Programs with caches need them.
Program stage_model(const Recipe& r, const ProgramSpec& spec) {
  const ForwardShape shape = {spec.kind, spec.batch, spec.seq, spec.cache_length, spec.all_logits};
  const int ranks = r.layout().size(Axis::pipeline);
  if (ranks == 1 || (spec.kind != ProgramKind::train && spec.kind != ProgramKind::validation))
    return build_model(r.model, shape);
  const std::vector<int64_t> layers = stage_layers(r);
  const auto own = layers.begin() + (spec.stage + spec.chunk * ranks);
  const int64_t first = std::accumulate(layers.begin(), own, int64_t(0));
  return build_layers(r.model, shape, {std::max<int64_t>(0, first - 1), std::min(r.model.layers, first + *own + 1)});
}

}  // namespace crest
