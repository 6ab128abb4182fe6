// --explain flops: the conventions, compared with the Program's executed FLOPs.
#include <fmt/format.h>

#include "model/parameters.h"
#include "plan/explain.h"
#include "plan/step_flops.h"
#include "program/op.h"

namespace crest {

namespace {

// A step's FLOPs in one phase.
double phase_flops(const CompiledSession& s, Phase phase) {
  double sum = 0;
  for (auto& call : s.programs) {
    if (call.spec.kind != ProgramKind::train) continue;
    double flops = 0;
    for (auto& instr : call.program.code)
      if (instr.phase == phase) flops += instr.op->cost(call.program, instr).flops;
    int64_t calls =
        call.spec.name == "train.next" ? s.recipe.grad_accumulation - (s.find("train.last") < 0 ? 1 : 2) : 1;
    sum += flops * double(calls);
  }
  return sum * double(s.recipe.all_ranks());
}

}  // namespace

Explanation explain_flops(const CompiledSession& s, const ExplainOptions&) {
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  auto tokens = double(r.tokens_per_step()), seq = double(r.seq_length()), h = double(m.width),
       layers = double(m.layers);
  double keys = m.keys_per_token(r.seq_length());
  std::string a_window = keys < seq ? "; a window limits s, the keys seen by a token" : "";
  auto n = double(matmul_parameter_count(m)), all = double(parameter_count(m)), vocab = double(m.vocab);
  double sequences = tokens / seq, heads = double(m.heads * m.head_dim);
  double executed = executed_flops(s) * double(r.all_ranks());
  double recomputed = phase_flops(s, Phase::recompute), forward = phase_flops(s, Phase::forward);
  std::string step = fmt::format("{:.0f} tokens", tokens);
  auto term = [&](std::string name, std::string formula, std::string numbers, double value, std::string source,
                  std::string difference = "") {
    return Term{std::move(name),      std::move(formula), std::move(numbers), value, "FLOP", std::move(source), {},
                std::move(difference)};
  };
  std::string numbers = fmt::format("N={:.0f} (weights in matmuls), {}", n, step);
  Term palm =
      term("PaLM: MFU refers to it", "(6 N + 12 L a d s) tokens",
           fmt::format("{}, L={:g} a d={:g} s={:g}", numbers, layers, heads, keys),
           flops_per_token(m, r.seq_length()) * tokens, "Chowdhery et al. 2022 (arXiv 2204.02311), appendix B",
           "without a discount for causal attention; the Program has one where kernels skip masked keys" + a_window);
  palm.program = executed - recomputed;
  Term hardware =
      term("executed", "sum over the instructions", "recompute, padding and the update included", executed, "Crest");
  hardware.program = executed;
  double megatron = 72 * sequences * seq * layers * h * h * (1 + seq / (6 * h) + vocab / (12 * layers * h));
  double megatron_full = 96 * sequences * seq * layers * h * h * (1 + seq / (6 * h) + vocab / (16 * layers * h));
  std::string shape = fmt::format("B={:g} s={:g} L={:g} h={:g} V={:g}", sequences, seq, layers, h, vocab);
  const char* gpt = "for a GPT with an MLP of 4 h and as many key/value heads as heads";
  std::vector<Term> training = {
      term("6 N", "6 N tokens", numbers, 6 * n * tokens, "Kaplan et al. 2020 (arXiv 2001.08361)",
           "without attention's scores"),
      palm,
      term("3 x 2 P", "2 x 3 P tokens", fmt::format("P={:.0f} (all parameters), {}", all, step), 6 * all * tokens,
           "Software Tune Up, TFLOPS as a performance metric", "embeddings count, though a lookup multiplies nothing"),
      term("4 x 2 P, with full recompute", "2 x 4 P tokens", fmt::format("P={:.0f}, {}", all, step), 8 * all * tokens,
           "Software Tune Up, TFLOPS as a performance metric"),
      term("Megatron", "72 B s L h^2 (1 + s/(6 h) + V/(12 L h))", shape, megatron,
           "Narayanan et al. 2021 (arXiv 2104.04473), without the recomputed forward pass of equation 3", gpt),
      term("Megatron, with full recompute", "96 B s L h^2 (1 + s/(6 h) + V/(16 L h))", shape, megatron_full,
           "Narayanan et al. 2021 (arXiv 2104.04473), equation 3", gpt),
      hardware};
  if (recomputed > 0) {
    Term again = term("of these, recomputed", "sum over the instructions of the recompute phase",
                      fmt::format("--recompute {}", r.recompute), recomputed, "Crest");
    again.program = recomputed;
    training.push_back(again);
  }
  training.push_back({"multiply-accumulates",
                      "FLOPs / 2",
                      fmt::format("{:.0f} / 2", palm.value),
                      palm.value / 2,
                      "MAC",
                      "Software Tune Up, MACs vs FLOP",
                      {},
                      ""});
  double layer = 24 * sequences * seq * h * h + 4 * sequences * seq * seq * h;
  Term forward_term =
      term("forward pass", "L (24 B s h^2 + 4 B s^2 h) + 2 B s h V", shape, layers * layer + 2 * tokens * h * vocab,
           "Software Tune Up, TFLOPS as a performance metric; with the head", gpt);
  forward_term.program = forward;
  ExplainSection inference{"a forward pass over the same tokens",
                           {forward_term, term("2 N", "(2 N + 4 L a d s) tokens", numbers,
                                               (2 * n + 4 * layers * heads * keys) * tokens, "a third of PaLM's")}};
  return {"flops", {{"a training step", training}, inference}};
}

}  // namespace crest
