#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "passes/pass.h"
#include "program/verify.h"

namespace crest {

// One file each: passes/NAME.cpp.
void pad_vocabulary(Program&, const PassContext&);
void pack_documents(Program&, const PassContext&);
void decompose_attention(Program&, const PassContext&);
void decompose_pointwise(Program&, const PassContext&);
void set_precision(Program&, const PassContext&);
void autograd(Program&, const PassContext&);
void accumulate(Program&, const PassContext&);
void chunk_loss(Program&, const PassContext&);
void clip_gradients(Program&, const PassContext&);
void optimizer(Program&, const PassContext&);
void group_parameters(Program&, const PassContext&);
void recompute(Program&, const PassContext&);
void data_parallel(Program&, const PassContext&);
void fuse(Program&, const PassContext&);
void assign_lanes(Program&, const PassContext&);
void prune(Program&, const PassContext&);

const std::vector<Pass>& pipeline() {
  static const std::vector<Pass> passes = {
      {"vocabulary_padding", "pads embedding and head to a multiple (--pad-vocab); the loss masks the padding",
       pad_vocabulary},
      {"packing",
       "--packing documents: positions as an input; attention and positions know where a document begins",
       pack_documents,
       {{"packing", "stream",
         "rows of tokens: stream (windows of all text, whatever begins in them) or documents "
         "(whole ones side by side that do not see each other)"}}},
      {"attention", "--attention naive: attention as matmul, scale, mask, softmax, matmul", decompose_attention},
      {"decompose", "--fusion off: GELU as pointwise instructions", decompose_pointwise},
      {"precision", "--precision, --policy: dtypes of weights and activations, casts, loss scaling", set_precision},
      {"autograd",
       "adds the backward instructions and the parameters' gradients",
       autograd,
       {},
       "it makes the gradients"},
      {"accumulate",
       "--grad-accumulation: first micro step writes gradients, later ones add to them",
       accumulate,
       {},
       "it adds up micro steps"},
      {"loss_chunk",
       "--loss-chunk: projection, loss and gradients of the head for some tokens at a time",
       chunk_loss,
       {{"loss-chunk", "auto",
         "tokens whose logits live at a time; auto (on a CPU 32 MiB of them, at least 256, in half "
         "precision 512; on a GPU 8192 tokens), "
         "off"}}},
      {"clip",
       "--clip: global norm of the gradients, factor for the optimizer, detection of NaN",
       clip_gradients,
       {},
       "it finds gradients that are not finite and undoes the loss scale"},
      {"optimizer",
       "--optimizer: the update of every parameter; moments and fp32 master weights as state",
       optimizer,
       {{"state-block", "256", "adamw-8bit: elements of the state that share a scale"},
        {"master-weights", "split",
         "fp32 masters of bf16 weights: split (beside a weight the 16 bits that it lacks, where the update is "
         "element by element) or fp32 (whole)"}},
       "it makes the update"},
      {"groups",
       "parameters, gradients and states of a group get contiguous memory",
       group_parameters,
       {},
       "gradients of one program reach the next through their group"},
      {"recompute", "--recompute: clones forward instructions into the backward half instead of keeping values",
       recompute},
      {"data_parallel",
       "ranks > 1: gradients and loss are summed over the ranks after the last micro step",
       data_parallel,
       {},
       "it sums over the ranks"},
      {"fusion",
       "--fusion on: residual + norm, GEMM + GELU, scale + mask + softmax, loss + gradient, pointwise chains, flat "
       "optimizer",
       fuse},
      {"lanes", "assigns communication to its own lane", assign_lanes},
      {"prune", "removes instructions whose results nobody reads", prune},
  };
  return passes;
}

std::string PassContext::lever(std::string_view name) const {
  if (auto it = recipe.levers.find(std::string(name)); it != recipe.levers.end()) return it->second;
  for (auto& pass : pipeline())
    for (auto& lever : pass.levers)
      if (name == lever.name) return lever.otherwise;
  fail_internal(fmt::format("no pass declares the lever '{}'", name));
}

double PassContext::number(std::string_view name) const {
  std::string text = lever(name);
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail_usage(fmt::format("'{}' is no number", printable(text)), fmt::format("--{}", name));
  return value;
}

std::vector<PassTiming> run_passes(Program& program, const PassContext& context, const PipelineOptions& options) {
  std::vector<std::string> names;
  for (auto& p : pipeline()) names.push_back(p.name);
  auto known = [&](const std::string& n, const char* flag) {
    if (!n.empty() && std::find(names.begin(), names.end(), n) == names.end())
      fail_usage(fmt::format("unknown pass '{}'", printable(n)), flag,
                 fmt::format("{} Passes: {}.", did_you_mean(n, names), join(names, ", ")));
  };
  for (auto& n : context.recipe.disabled_passes) known(n, "--disable-pass");
  known(options.stop_after, "--after");

  if (options.verify) verify(program, "model");
  std::vector<PassTiming> timings;
  for (auto& pass : pipeline()) {
    auto start = std::chrono::steady_clock::now();
    auto& off = context.recipe.disabled_passes;
    if (std::find(off.begin(), off.end(), pass.name) == off.end()) {
      pass.run(program, context);
      if (options.verify) verify(program, pass.name);
    }
    timings.push_back({pass.name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
    if (pass.name == options.stop_after) break;
  }
  return timings;
}

}  // namespace crest
