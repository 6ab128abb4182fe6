// --explain traffic: the bytes sent by each kind of parallelism.
#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "model/parameters.h"
#include "plan/compile.h"
#include "plan/explain.h"
#include "plan/session_properties.h"
#include "program/op.h"
#include "program/sent_bytes.h"

namespace crest {

namespace {

// Bytes sent by a rank in a step's collectives, filtered by `counts`.
template <class F>
double sent_by_program(const CompiledSession& s, F counts) {
  const Mesh mesh = s.recipe.layout();
  double sum = 0;
  for (auto& c : training_step(s)) {
    const Program& p = s.programs[size_t(c.segment)].program;
    for (auto& instr : p.code)
      if (instr.op->op_class == OpClass::communication && counts(instr))
        sum += sent_bytes(p, instr, mesh.size(axes_of(instr)));
  }
  return sum;
}

bool in_layer(const Instr& instr) { return instr.origin.layer() >= 0; }
bool along_data(const Instr& instr) { return axes_of(instr).has(Axis::data); }
// Exchanges of tensor ranks in forward and backward passes, without the sums of gradients.
bool of_rows(const Instr& instr) { return !along_data(instr) && std::string_view(instr.op->name) != "all_reduce"; }

// The session on ranks along one axis; none, and `why`, if they cannot divide the model.
std::optional<CompiledSession> on_ranks(const CompiledSession& s, Axis axis, int ranks, std::string& why) {
  Recipe r = s.recipe;
  r.data_parallel = 1, r.ranks = ranks, r.mesh = {{axis, ranks}};
  // Each mesh has its own cut and its own default of overlap.
  for (const char* of_mesh : {"stages", "schedule-pipeline", "tensor-overlap"}) r.pass_settings.erase(of_mesh);
  SessionUse use;
  use.train = use.update = true;
  try {
    return compile(r, s.device, session_programs(r, use), {.verify = false});
  } catch (const Error& e) {
    if (e.code() != Exit::usage) throw;
    why = e.problem();
    return {};
  }
}

}  // namespace

Explanation explain_traffic(const CompiledSession& s, const ExplainOptions& o) {
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  // All ranks with the same weights.
  int64_t data = int64_t(o.mesh.size(Axis::data)) * o.mesh.size(Axis::context) * r.copies();
  auto n = double(data), gas = double(r.grad_accumulation), parameters = double(trained_parameter_count(m));
  double g = r.grad_dtype == "bf16" ? 2 : 4, w = double(activation_bytes(r));
  double ring = data > 1 ? (n - 1) / n : 0;
  std::string sizes = fmt::format("n={} G={:g} x {:.0f} W={:g} x {:.0f}", data, g, parameters, w, parameters);
  const char* document = "Software Tune Up, Gradient Accumulation";
  const char* zero = "Rajbhandari et al. 2020 (arXiv 1910.02054), section 7";
  auto term = [](std::string name, std::string formula, std::string numbers, double value, std::string source,
                 std::string difference = "") {
    return Term{std::move(name),      std::move(formula), std::move(numbers), value, "bytes", std::move(source), {},
                std::move(difference)};
  };
  Term reduce = term("data parallel: all-reduce of gradients", "2 (n - 1)/n G", sizes, 2 * ring * g * parameters,
                     document, "once a step: accumulation adds nothing");
  Term zero1 = term("ZeRO 1 and 2: reduce-scatter of gradients, all-gather of weights", "(n - 1)/n (G + W)", sizes,
                    ring * (g + w) * parameters, zero);
  Term zero3 = term("ZeRO 3: weights twice a micro step, gradients once a step", "(n - 1)/n (2 m W + G)",
                    fmt::format("{} m={}", sizes, r.grad_accumulation), ring * (2 * gas * w + g) * parameters, zero,
                    "Crest sums gradients after every micro step; weights that are used again soon stay");
  if (r.data_ranks() > 1) {
    Term& ours = keeps_shards(s, Role::weight, Axis::data)  ? zero3
                 : keeps_shards(s, Role::state, Axis::data) ? zero1
                                                            : reduce;
    ours.program = sent_by_program(s, along_data);
    ours.difference +=
        std::string(ours.difference.empty() ? "" : "; ") + "the Program's tensors have the padded vocabulary";
    auto sent = r.pass_settings.find("comm-dtype");
    if (sent != r.pass_settings.end() && sent->second == "bf16") ours.difference += "; fp32 gradients are sent as bf16";
    if (o.mesh.size(Axis::data) > 1) ours.difference += "; the Program's ranks come from --ranks and --data-parallel";
  }
  std::vector<Term> of_data = {reduce, zero1, zero3,
                               term("data parallel that reduces every micro step", "2 (n - 1)/n m G",
                                    fmt::format("{} m={}", sizes, r.grad_accumulation), 2 * ring * gas * g * parameters,
                                    document, "what accumulation saves")};
  std::vector<ExplainSection> sections = {
      {fmt::format("data parallel: bytes that {} in a step",
                   data == 1 ? "one rank sends" : fmt::format("each of {} ranks sends", data)),
       of_data}};
  double activations = double(r.batch * r.seq_length() * m.width) * w;
  std::string shape = fmt::format("b={} s={} h={} B={:g} L={} m={}", r.batch, r.seq_length(), m.width, w, m.layers,
                                  r.grad_accumulation);
  auto t = double(o.mesh.size(Axis::tensor)), stages = double(o.mesh.size(Axis::pipeline));
  double layers = double(m.layers) / stages;
  if (o.mesh.size(Axis::tensor) > 1) {
    const std::string ranks = fmt::format("t={} {}", o.mesh.size(Axis::tensor), shape);
    Term of_layers = term("all-reduces: two forward and two backward a layer", "m L/p 4 x 2 (t - 1)/t b s h B", ranks,
                          gas * layers * 8 * (t - 1) / t * activations, "Shoeybi et al. 2019 (arXiv 1909.08053)",
                          "full recompute adds the two of the forward pass again");
    Term of_ends = term("embedding and head, three numbers of each row for the loss",
                        "m (2 x 2 (t - 1)/t b s h B + 12 (t - 1) b s)", ranks,
                        gas * (4 * (t - 1) / t * activations + 12 * (t - 1) * double(r.batch * r.seq_length())),
                        "Shoeybi et al. 2019 (arXiv 1909.08053), section 3");
    std::string why;
    if (auto parts = on_ranks(s, Axis::tensor, o.mesh.size(Axis::tensor), why); parts && stages == 1) {
      of_layers.program = sent_by_program(*parts, [](const Instr& i) { return of_rows(i) && in_layer(i); });
      of_ends.program = sent_by_program(*parts, [](const Instr& i) { return of_rows(i) && !in_layer(i); });
      of_layers.difference += "; an all-reduce is a reduce-scatter and an all-gather, with norms between them";
    } else if (!why.empty()) {
      of_layers.difference += "; no Program, because " + why;
    }
    sections.push_back(
        {fmt::format("tensor parallel: bytes that each of {} ranks sends in a step", o.mesh.size(Axis::tensor)),
         {of_layers, of_ends}});
  }
  if (const int ranks = o.mesh.size(Axis::context); ranks > 1) {
    const auto c = double(ranks), keys = 2 * double(m.kv_heads * m.head_dim);
    Term of_keys = term("keys and values of all tokens, and the sums of their gradients", "m L 2 (c - 1)/c b s K B",
                        fmt::format("c={} K={:g} {}", ranks, keys, shape),
                        gas * double(m.layers) * 2 * (c - 1) / c * double(r.batch * r.seq_length()) * keys * w,
                        "Dubey et al. 2024 (arXiv 2407.21783), section 3.3.2", "full recompute gathers them again");
    std::string why;
    if (auto parts = on_ranks(s, Axis::context, ranks, why); parts && stages == 1) {
      of_keys.program =
          sent_by_program(*parts, [](const Instr& i) { return std::string_view(i.op->name).ends_with("_tokens"); });
    } else if (!why.empty()) {
      of_keys.difference += "; no Program, because " + why;
    }
    sections.push_back(
        {fmt::format("context parallel: bytes that each of {} ranks sends in a step", ranks), {of_keys}});
  }
  if (o.mesh.size(Axis::pipeline) > 1)
    sections.push_back({"pipeline parallel: bytes over each border of two stages in a step",
                        {term("activations one way, their gradients the other", "2 m b s h B",
                              fmt::format("p={} {}", o.mesh.size(Axis::pipeline), shape), 2 * gas * activations,
                              "Narayanan et al. 2021 (arXiv 2104.04473), section 3.2")}});
  return {"traffic", sections};
}

}  // namespace crest
