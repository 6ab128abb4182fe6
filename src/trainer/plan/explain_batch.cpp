// --explain batch: sequences per step, ranks per replica, and the pipeline bubble.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/parameters.h"
#include "plan/explain.h"

namespace crest {

Explanation explain_batch(const CompiledSession& s, const ExplainOptions& o) {
  const Recipe& r = s.recipe;
  const char* document = "Software Tune Up, Batch sizes";
  // The recipe's ranks are data parallel. --mesh adds other axes.
  const int64_t tensor = o.mesh.size(Axis::tensor), pipeline = o.mesh.size(Axis::pipeline);
  const int64_t context = o.mesh.size(Axis::context), of_replica = tensor * context * pipeline;
  // Context parallel ranks have a factor of their own where there are some.
  const std::string by_context = context > 1 ? fmt::format(" x {}", context) : "", cp = context > 1 ? " x CP" : "";
  int64_t data = int64_t(o.mesh.size(Axis::data)) * r.data_ranks();
  int64_t gpus = data * of_replica;
  auto mbs = double(r.batch), gas = double(r.grad_accumulation), dp = double(data);
  Term dp_term{"DP",
               fmt::format("N_GPUs / (TP{} x PP)", cp),
               fmt::format("{} / ({}{} x {})", gpus, tensor, by_context, pipeline),
               dp,
               "replicas",
               document,
               double(r.data_ranks()),
               ""};
  if (data != r.data_ranks())
    dp_term.difference = "the Program's ranks are --ranks and --data-parallel; --mesh is only calculated with";
  Term gbs{"GBS",
           "MBS x DP x GAS",
           fmt::format("{} x {} x {}", r.batch, data, r.grad_accumulation),
           mbs * dp * gas,
           "sequences",
           document,
           double(r.tokens_per_step()) / double(r.seq_length()),
           data == r.data_ranks() ? "" : "of the Program's ranks alone"};
  Term tokens{"tokens per step",
              "GBS x s",
              fmt::format("{:g} x {}", gbs.value, r.seq_length()),
              gbs.value * double(r.seq_length()),
              "tokens",
              document,
              double(r.tokens_per_step()),
              gbs.difference};
  std::vector<Term> batch = {dp_term, gbs, tokens};
  if (o.tokens > 0)
    batch.push_back({"steps of the training",
                     "tokens / tokens per step",
                     fmt::format("{:g} / {:g}", o.tokens, tokens.value),
                     std::ceil(o.tokens / tokens.value),
                     "steps",
                     "Crest",
                     {},
                     ""});
  auto n = double(parameter_count(r.model));
  auto limit = double(std::max<int64_t>(1, o.limit));
  Term states{"GPUs for the states of a replica",
              "ceil(18 N / memory)",
              fmt::format("18 x {:.0f} / {:.0f}", n, limit),
              std::ceil(18 * n / limit),
              "GPUs",
              "Software Tune Up, Anatomy of Model's Memory Usage",
              std::ceil(double(s.planned_bytes()) / limit),
              "the Program's whole plan, activations included, divided evenly; ranks repeat some of it"};
  Term replica{"ranks of a replica",
               fmt::format("TP{} x PP", cp),
               fmt::format("{}{} x {}", tensor, by_context, pipeline),
               double(of_replica),
               "ranks",
               document,
               {},
               ""};
  std::vector<ExplainSection> sections = {{"batch", batch}, {"a replica", {replica, states}}};
  auto p = double(pipeline);
  if (pipeline > 1) {
    const char* narayanan = "Narayanan et al. 2021 (arXiv 2104.04473), section 2.2";
    std::string numbers = fmt::format("p={} m={}", pipeline, r.grad_accumulation);
    sections.push_back(
        {"the bubble of a pipeline",
         {{"over the ideal time",
           "(p - 1) / m",
           numbers,
           (p - 1) / gas,
           "of the ideal time",
           narayanan,
           {},
           "equal stages, without the time of transfers"},
          {"of the step", "(p - 1) / (m + p - 1)", numbers, (p - 1) / (gas + p - 1), "of the step", narayanan, {}, ""},
          {"micro steps for a bubble of 10%",
           "m = 9 (p - 1)",
           numbers,
           9 * (p - 1),
           "micro steps",
           narayanan,
           {},
           ""}}});
  }
  return {"batch", sections};
}

}  // namespace crest
