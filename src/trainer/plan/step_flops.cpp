#include "plan/step_flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/parameters.h"
#include "program/op.h"

namespace crest {

// How often a step runs a Program. Counts training_step(session) without building a list of up to
// 10^9 micro steps.
static int64_t calls_of_a_step(const CompiledSession& s, const ProgramSpec& spec) {
  if (forward_only(s)) return &spec == &s.programs[size_t(training_step(s)[0].segment)].spec;
  if (spec.kind == ProgramKind::update) return 1;
  if (spec.kind != ProgramKind::train) return 0;
  if (spec.name != "train.next" && spec.of != "train.next") return 1;
  const bool last = std::any_of(s.programs.begin(), s.programs.end(),
                                [](auto& c) { return c.spec.name == "train.last" || c.spec.of == "train.last"; });
  return s.recipe.grad_accumulation - (last ? 2 : 1);
}

double sum_of_step(const CompiledSession& session, const std::function<double(const Program&, const Instr&)>& each) {
  double sum = 0;
  for (auto& c : session.programs) {
    int64_t calls = calls_of_a_step(session, c.spec);
    if (!calls) continue;
    double once = 0;
    for (auto& instr : c.program.code) once += each(c.program, instr);
    sum += once * double(calls);
  }
  return sum;
}

double executed_flops(const CompiledSession& session) {
  return sum_of_step(session, [](const Program& p, const Instr& i) { return i.op->cost(p, i).flops; });
}

// Of a matmul in a forward pass, without bias and activation.
static double matmul_flops(const Program& p, const Instr& i) {
  const std::string_view op = i.op->name;
  if (!op.starts_with("linear")) return i.op->cost(p, i).flops;
  const double matrices = op == "linear_swiglu" ? 2 : 1;
  return 2 * matrices * double(p.at(i.in[0]).shape.rows()) * double(p.at(i.in[1]).shape.numel());
}

double recomputed_flops(const CompiledSession& s) {
  auto sum = [&](Phase phase, OpClass op_class) {
    return sum_of_step(s, [&](const Program& p, const Instr& i) {
      if (i.phase != phase || i.op->op_class != op_class) return 0.0;
      return op_class == OpClass::contraction ? matmul_flops(p, i) : i.op->cost(p, i).flops;
    });
  };
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  const double matmuls = sum(Phase::recompute, OpClass::contraction) * double(r.all_ranks());
  const double again = sum(Phase::recompute, OpClass::attention), once = sum(Phase::forward, OpClass::attention);
  if (again == 0) return matmuls;
  const double scores = 4 * double(m.layers) * double(m.heads * m.head_dim) * m.keys_per_token(r.seq_length());
  return matmuls + again / once * scores * double(r.tokens_per_step());
}

StepFlops step_flops(const CompiledSession& s) {
  const double model = flops_per_token(s.recipe.model, s.recipe.seq_length()) * double(s.recipe.tokens_per_step());
  return {model, model + recomputed_flops(s)};
}

std::string palm_convention(const Recipe& recipe, bool forward) {
  const ModelConfig& m = recipe.model;
  auto seq = double(recipe.seq_length());
  std::string text = forward       ? "(6N + 12 L d T) / 3 per token (PaLM, appendix B; a forward pass is a third"
                     : m.lora.rank ? "4N + 2A + 12 L d T per token (PaLM, appendix B; A of the N weights are trained"
                                   : "6N + 12 L d T per token (PaLM, appendix B";
  if (m.keys_per_token(recipe.seq_length()) < seq)
    text += fmt::format("; T at most the window of {}", m.widest_window());
  return text + "), no causal discount";
}

}  // namespace crest
