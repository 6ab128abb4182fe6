#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "passes/pass.h"
#include "program/placements.h"
#include "program/verify.h"

namespace crest {

// Passes, defined in passes/NAME.cpp.
void pad_vocabulary(Program&, const PassContext&);
void pack_documents(Program&, const PassContext&);
void context_parallel(Program&, const PassContext&);
void tensor_parallel(Program&, const PassContext&);
void pipeline_parallel(Program&, const PassContext&);
void decompose_attention(Program&, const PassContext&);
void decompose_pointwise(Program&, const PassContext&);
void set_precision(Program&, const PassContext&);
void autograd(Program&, const PassContext&);
void accumulate(Program&, const PassContext&);
void quantize_linears(Program&, const PassContext&);
void quantize_weights(Program&, const PassContext&);
void chunk_loss(Program&, const PassContext&);
void clip_gradients(Program&, const PassContext&);
void optimizer(Program&, const PassContext&);
void group_parameters(Program&, const PassContext&);
void recompute(Program&, const PassContext&);
void return_borrowed(Program&, const PassContext&);
void send_results(Program&, const PassContext&);
void data_parallel(Program&, const PassContext&);
void join_swiglu(Program&, const PassContext&);
void join_epilogues(Program&, const PassContext&);
void fuse(Program&, const PassContext&);
void join_dropout(Program&, const PassContext&);
void join_quantization(Program&, const PassContext&);
void keep_activations(Program&, const PassContext&);
void overlap_tensor(Program&, const PassContext&);
void shard(Program&, const PassContext&);
void offload(Program&, const PassContext&);
void join_update_quantization(Program&, const PassContext&);
void overlap_gradients(Program&, const PassContext&);
void assign_streams(Program&, const PassContext&);
void keep_forward_half(Program&, const PassContext&);
void prune(Program&, const PassContext&);
void pitch_rows(Program&, const PassContext&);

// Their settings, defined in the same files.
const std::vector<Setting>& pad_vocabulary_settings();
const std::vector<Setting>& packing_settings();
const std::vector<Setting>& tensor_parallel_settings();
const std::vector<Setting>& pipeline_parallel_settings();
const std::vector<Setting>& attention_settings();
const std::vector<Setting>& precision_settings();
const std::vector<Setting>& accumulate_settings();
const std::vector<Setting>& fp8_settings();
const std::vector<Setting>& fp8_activations_settings();
const std::vector<Setting>& int8_settings();
const std::vector<Setting>& loss_chunk_settings();
const std::vector<Setting>& clip_settings();
const std::vector<Setting>& optimizer_settings();
const std::vector<Setting>& recompute_settings();
const std::vector<Setting>& data_parallel_settings();
const std::vector<Setting>& fusion_settings();
const std::vector<Setting>& tensor_overlap_settings();
const std::vector<Setting>& shard_settings();
const std::vector<Setting>& offload_settings();
const std::vector<Setting>& gradient_overlap_settings();

const std::vector<Pass>& pipeline() {
  static const std::vector<Pass> passes = {
      {"vocabulary_padding", "--pad-vocab: pads embedding and head to a multiple; the loss masks the padding",
       pad_vocabulary, pad_vocabulary_settings},
      {"packing", "--packing documents: positions become an input; positions and attention restart with each document",
       pack_documents, packing_settings},
      {"context_parallel",
       "--mesh context=C: every rank has two chunks of each sequence, and gathers the keys and values of the others",
       context_parallel, nullptr, "it shares the sequences between ranks"},
      {"tensor_parallel",
       "--mesh tensor=T: every rank has a part of each layer's matrices, and of the rows between layers",
       tensor_parallel, tensor_parallel_settings, "it shares the model between ranks"},
      {"pipeline_parallel",
       "--mesh pipeline=P: the layers of one stage, between what it receives from the stage before it and what it "
       "sends to the next one",
       pipeline_parallel, pipeline_parallel_settings, "it shares the layers between ranks"},
      {"attention", "--attention naive: attention as matmul, scale, mask, softmax, matmul", decompose_attention,
       attention_settings},
      {"decompose", "--fusion off: GELU as pointwise instructions", decompose_pointwise},
      {"precision", "--precision, --policy: dtypes of weights and activations, casts, loss scaling", set_precision,
       precision_settings},
      {"autograd", "adds the backward instructions and the parameters' gradients", autograd, nullptr,
       "it creates the gradients"},
      {"accumulate", "--grad-accumulation: the first micro step writes gradients, later ones add to them", accumulate,
       accumulate_settings, "it accumulates micro steps"},
      {"int8",
       "--weights int8: matrices of linear layers as 8-bit integers, in Programs that evaluate and sample; "
       "--base-weights: the form of a frozen matrix (--lora)",
       quantize_weights, int8_settings},
      {"loss_chunk", "--loss-chunk: projection, loss and gradients of the head for some tokens at a time", chunk_loss,
       loss_chunk_settings},
      {"clip", "--clip: global norm of the gradients, factor for the optimizer, detection of NaN", clip_gradients,
       clip_settings, "it finds gradients that are not finite and undoes the loss scale"},
      {"optimizer", "--optimizer: the update of every parameter; moments and fp32 master weights as state", optimizer,
       optimizer_settings, "it creates the update"},
      {"fp8",
       "--precision fp8: scales and converts operands of the blocks' linear layers to 8-bit floats for their matmuls",
       quantize_linears, fp8_settings},
      {"groups", "parameters, gradients and states of a group get contiguous memory", group_parameters, nullptr,
       "gradients of one Program reach the next through their group"},
      {"recompute", "--recompute: clones forward instructions into the backward half instead of keeping their results",
       recompute, recompute_settings},
      {"fp8_activations", "--fp8-activations: activations kept for the gradients of GELU and SwiGLU are in 8 bits",
       keep_activations, fp8_activations_settings},
      {"borrowed", "--mesh pipeline=P: the last stage returns its gradient of a tied embedding to the first one",
       return_borrowed, nullptr, "it sums the gradients of the embedding"},
      {"data_parallel",
       "--ranks, --data-parallel, --mesh, --reduce: gradients and loss are summed over the ranks after the last micro "
       "step",
       data_parallel, data_parallel_settings, "it sums over the ranks"},
      {"loss_to_first", "--mesh pipeline=P: the last stage sends the loss, or the logits of a sample, to the first one",
       send_results, nullptr, "rank 0 reports the loss"},
      {"swiglu",
       "--fusion on: SwiGLU's gate and up become one matmul with the activation, its gradient part of the preceding "
       "matmul, and the two gradients of its input one sum",
       join_swiglu},
      {"epilogues",
       "--fusion on: GELU's gradient, its column sums and GELU itself become part of the preceding matmul; bias "
       "gradients that sum a norm's gradient and repeated norms become part of the norm's gradient",
       join_epilogues},
      {"fusion",
       "--fusion on: residual + norm, GEMM + GELU, scale + mask + softmax, loss + gradient, pointwise chains, flat "
       "optimizer",
       fuse, fusion_settings},
      {"dropout",
       "--fusion on: dropout of the residual stream becomes part of embeddings, residual + norm and the norm's "
       "gradient",
       join_dropout},
      {"quantization", "--fusion on: with --precision fp8, kernels quantize the tensors they make", join_quantization},
      {"tensor_overlap",
       "--tensor-overlap rows: with --mesh tensor=T, products of some rows run while other rows travel", overlap_tensor,
       tensor_overlap_settings},
      {"shard",
       "--shard: every rank has its share of the optimizer's state and updates its share of the weights; gradients "
       "and weights, if shared, are whole only during their use",
       shard, shard_settings, "it shares the update between ranks"},
      {"offload",
       "--offload: the optimizer's state is in host memory; the update copies it to the device and back in pieces. "
       "Activations kept for the backward pass are in host memory in between",
       offload, offload_settings},
      {"fused_update", "--fusion on: the update's kernel also quantizes the new weights (--fp8-weights update)",
       join_update_quantization},
      {"forward_half", "phase forward-saved: only the forward half; inputs of the backward half stay alive",
       keep_forward_half, nullptr, "it ends the Program after its forward half"},
      {"gradient_overlap",
       "--gradient-overlap: on a GPU, gradients of parameters run on a stream of their own if the rest of the backward "
       "pass "
       "leaves multiprocessors idle",
       overlap_gradients, gradient_overlap_settings},
      {"lanes", "collectives on the communication stream start when their tensors are final", assign_streams},
      {"prune", "removes instructions with unused results", prune},
      {"row_pitch",
       "on a GPU: rows of logits begin at multiples of 128 bytes if their width is not a multiple of 16 bytes; shapes "
       "and results stay the same",
       pitch_rows},
  };
  return passes;
}

const std::vector<Setting>& pass_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> rows;
    for (auto& pass : pipeline())
      if (pass.settings) rows.insert(rows.end(), pass.settings().begin(), pass.settings().end());
    return rows;
  }();
  return all;
}

Setting pass_setting(Setting row) {
  row.get = [](const Setting& s, const void* object) {
    auto& pass_settings = static_cast<const Recipe*>(object)->pass_settings;
    auto it = pass_settings.find(s.name);
    std::string text = it == pass_settings.end() ? std::string(s.default_value) : it->second;
    return s.type == SettingType::text ? SettingValue(text) : parse_setting(s, text);
  };
  row.set = [](const Setting& s, void* object, const SettingValue& value) {
    static_cast<Recipe*>(object)->pass_settings[s.name] = text_of(value);
  };
  return row;
}

static const Setting& pass_row(std::string_view name) {
  for (auto& row : pass_settings())
    if (name == row.name) return row;
  fail_internal(fmt::format("no pass declares the setting '{}'", name));
}

std::string PassContext::setting(std::string_view name) const {
  const Setting& row = pass_row(name);
  return text_of(row.get(row, &recipe));
}

double PassContext::number(std::string_view name) const {
  Setting number = pass_row(name);
  number.type = SettingType::number;
  return std::get<double>(parse_setting(number, setting(name)));
}

bool is_disabled(const Recipe& recipe, std::string_view pass) {
  const auto& off = recipe.disabled_passes;
  return std::find(off.begin(), off.end(), pass) != off.end();
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
  bool summed = false;  // over the ranks
  std::vector<PassTiming> timings;
  for (auto& pass : pipeline()) {
    Timer timer;
    if (!is_disabled(context.recipe, pass.name)) {
      pass.run(program, context);
      if (options.verify) verify(program, pass.name);
      summed |= pass.run == data_parallel;
      if (options.verify && summed && !context.forward_only) verify_placements(program, pass.name);
    }
    timings.push_back({pass.name, timer.seconds()});
    if (pass.name == options.stop_after) break;
  }
  return timings;
}

}  // namespace crest
