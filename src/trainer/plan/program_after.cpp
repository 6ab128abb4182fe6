#include "plan/program_after.h"

#include "model/parameters.h"
#include "plan/choose_kernels.h"

namespace crest {

Program program_after(const Recipe& recipe, const Device& device, const ProgramSpec& spec, const std::string& pass) {
  Program p = build_model(recipe.model, {spec.kind, spec.batch, spec.seq, spec.cache_length, spec.all_logits});
  p.name = spec.name;
  if (pass != "model") run_passes(p, pass_context(recipe, spec, device), {.stop_after = pass});
  return p;
}

Program of_stage(const CompiledSession& s, const CompiledProgram& like, int stage) {
  ProgramSpec spec = like.spec;
  spec.stage = stage;
  return stage == s.stage ? like.program : program_after(s.recipe, s.device, spec, pipeline().back().name);
}

std::vector<Param> model_parameters(const CompiledSession& s) { return parameters_of(s.recipe.model); }

}  // namespace crest
