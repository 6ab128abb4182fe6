#include "plan/program_after.h"

#include "plan/choose_kernels.h"

namespace crest {

Program program_after(const Recipe& recipe, const Device& device, const ProgramSpec& spec, const std::string& pass) {
  Program p = build_model(recipe.model, {spec.kind, spec.batch, spec.seq, spec.cache_length});
  p.name = spec.name;
  if (pass != "model") run_passes(p, pass_context(recipe, spec, device), {.stop_after = pass});
  return p;
}

}  // namespace crest
