#include "interop/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/staging.h"
#include "data/text_rules.h"
#include "interop/gguf_architecture.h"
#include "model/parameters.h"

namespace crest {

void write_llmc(ExportJob&);
void write_nanogpt(ExportJob&);
void write_merged(ExportJob&);
void write_peft(ExportJob&);
void write_gguf(ExportJob&);

namespace {

// GPT-2's architecture, with all sizes of a layer derived from its width.
std::string lacks_of_gpt2(const ModelConfig& c) {
  LayerConfig plain;
  plain.activation = c.activation, plain.bias = c.bias, plain.norm_eps = c.norm_eps;
  return c.norm != NormKind::layer                           ? "RMSNorm"
         : c.position != PositionKind::learned               ? "rotary positions"
         : c.activation == ActivationKind::relu              ? "ReLU"
         : c.activation == ActivationKind::relu2             ? "squared ReLU"
         : c.activation == ActivationKind::swiglu            ? "SwiGLU"
         : c.activation == ActivationKind::geglu             ? "GEGLU"
         : c.kv_heads != c.heads                             ? "grouped-query attention"
         : c.widest_window()                                 ? "a sliding window"
         : c.heads * c.head_dim != c.width                   ? "heads that do not divide the width equally"
         : c.ff != 4 * c.width                               ? "an MLP that is not 4 times as wide as the model"
         : !c.tied                                           ? "a head of its own (untied)"
         : !c.bias && (c.has_qkv_bias() || c.has_mlp_bias()) ? "biases in some layers only"
         : !c.others.empty() || static_cast<const LayerConfig&>(c) != plain || c.embedding_scale != 1 ||
                 c.embedding_norm || c.logit_scale != 1 || c.logit_cap != 0
             ? "layers or factors that GPT-2 does not have"
         : c.norm_eps != 1e-5 ? fmt::format("norms with an epsilon of {}", c.norm_eps)
                              : "";
}

std::string lacks_of_llmc(const ModelConfig& c) {
  std::string lacks = lacks_of_gpt2(c);
  return lacks.empty() && !c.bias ? "layers without biases" : lacks;
}

}  // namespace

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> table = {
      {"llm.c",
       "llm.c",
       {{"fp32", DType::f32}, {"bf16", DType::bf16}},
       false,
       lacks_of_llmc,
       ActivationKind::gelu,
       write_llmc,
       {"in llm.c: ./train_gpt2cu -e OUT/model.bin"}},
      {"nanogpt",
       "nanoGPT",
       {{"fp32", DType::f32}},
       false,
       lacks_of_gpt2,
       ActivationKind::gelu_erf,
       write_nanogpt,
       {"in nanoGPT: python train.py --init_from=resume --out_dir=OUT"}},
      {"merged",
       "transformers",
       {{"fp32", DType::f32}, {"bf16", DType::bf16}},
       true,
       [](const ModelConfig&) { return std::string(); },
       std::nullopt,
       write_merged,
       {"in transformers: AutoModelForCausalLM.from_pretrained(\"OUT\")"}},
      {"peft",
       "peft",
       {{"fp32", DType::f32}},
       true,
       [](const ModelConfig&) { return std::string(); },
       std::nullopt,
       write_peft,
       {"in peft: PeftModel.from_pretrained(base, \"OUT\")"}},
      {"gguf",
       "llama.cpp",
       {{"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"q8_0", DType::i8}},
       false,
       gguf_lacks,
       ActivationKind::gelu,
       write_gguf,
       {"in llama.cpp: llama-cli -m OUT", "or llama-server -m OUT",
        "in Ollama (Crest's tests have not run it): echo FROM OUT > Modelfile && ollama create my-model -f Modelfile"},
       ".gguf"},
  };
  return table;
}

namespace {

const ExportFormat& find_format(const std::string& name) {
  std::vector<std::string> names;
  for (auto& format : export_formats()) {
    if (name == format.name) return format;
    names.push_back(format.name);
  }
  if (name.empty()) fail_usage("no format given", "--to", fmt::format("Formats: {}.", join(names, ", ")));
  fail_usage(fmt::format("unknown format '{}'", printable(name)), "--to",
             fmt::format("{} Formats: {}.", did_you_mean(name, names), join(names, ", ")));
}

// Both names of a type are understood: f32 and fp32, f16 and fp16.
const ExportType& find_type(const std::string& given, const ExportFormat& format) {
  std::vector<std::string> possible;
  for (auto& type : format.types) {
    const std::string_view short_name = crest::name(type.dtype);
    const bool other = given == short_name || (given == "fp32" && type.dtype == DType::f32) ||
                       (given == "fp16" && type.dtype == DType::f16);
    if (given.empty() || given == type.name || (other && type.dtype != DType::i8)) return type;
    possible.push_back(type.name);
  }
  fail_usage(fmt::format("Crest does not write '{}' for {}", printable(given), format.title), "--dtype",
             fmt::format("Values: {}.", join(possible, ", ")));
}

// "nanoGPT computes GELU exactly; this model was trained with its tanh form": "" if both are one.
std::string gelu_difference(const ModelConfig& c, const ExportFormat& format) {
  const bool gelu = c.activation == ActivationKind::gelu || c.activation == ActivationKind::gelu_erf;
  if (!format.activation || c.activation == format.activation || !gelu) return "";
  return format.activation == ActivationKind::gelu
             ? fmt::format("{} computes GELU in its tanh form; this model was trained with exact GELU", format.title)
             : fmt::format("{} computes GELU exactly; this model was trained with its tanh form", format.title);
}

void check_shape(const ModelConfig& c, const ExportFormat& format, bool other_gelu, const std::string& where) {
  if (std::string lacks = format.lacks(c); !lacks.empty())
    fail(fmt::format("the model has {}, which {} lacks", lacks, format.title), where,
         "It can be exported only to programs with its architecture. transformers opens checkpoints with a config.json "
         "as they are.");
  if (std::string difference = gelu_difference(c, format); !difference.empty() && !other_gelu)
    fail(difference, where, "The logits would differ slightly. To export it all the same, add --other-gelu.");
}

uint64_t bytes_of(const std::string& folder, const std::vector<std::string>& files) {
  uint64_t bytes = 0;
  for (auto& name : files) bytes += std::filesystem::file_size(join_path(folder, name));
  return bytes;
}

}  // namespace

std::string export_path(const ExportOptions& o, const std::string& model_path) {
  const ExportFormat& format = find_format(o.to);
  if (format.file && (o.out == "-" || o.out.ends_with('/') || is_directory(o.out)))
    fail_usage(fmt::format("'{}' is not the name of a file", printable(o.out)), "--out",
               fmt::format("Give a file: --out NAME{}.", format.file));
  if (!o.out.empty()) return o.out;
  if (!format.file) fail_usage("no output folder given", "--out", "Give a folder: --out DIR.");
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(model_path, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string() + format.file;
}

ExportResult export_model(const LoadedModel& model, const ExportOptions& o) {
  const ExportFormat& format = find_format(o.to);
  const ExportType& type = find_type(o.dtype, format);
  const bool adapted = model.config.lora.rank > 0;
  if (format.adapters && !adapted)
    fail(fmt::format("the model has no adapters, so there is nothing for --to {}", o.to), printable(model.weights_path),
         "transformers opens checkpoints with a config.json as they are.");
  const ModelConfig config = model.config.base();
  check_shape(config, format, o.other_gelu, printable(model.weights_path));
  std::optional<LoadedModel> base;
  if (adapted) base.emplace(open_base(model));
  const AdapterWeights adapter = adapted ? read_adapter(model) : AdapterWeights();
  WeightsFolder folder = WeightsFolder::open(base ? base->weights_path : model.weights_path);
  ParameterReader weights(model.config, folder, &adapter);
  require_new(o.out);
  StagingFolder staging(o.out);
  const std::string made = staging.path().string(), out = staging.out().string();
  const bool alone = format.write == write_peft;
  uint64_t all = uint64_t(alone ? trained_parameter_count(model.config) : parameter_count(config)), done = 0;
  require_free_space(parent_path(out), all * size_of(type.dtype), "the exported model");
  ExportJob job{model, config, weights, type.dtype, made, {}, {}, {}};
  job.advance = [&](uint64_t parameters) {
    done += parameters;
    if (o.progress) o.progress(done, all);
  };
  if (std::string difference = gelu_difference(config, format); !difference.empty())
    job.notes.push_back(difference + ". The logits will differ slightly.");
  format.write(job);
  ExportResult result{format.name, out, {}, config, "", 0, all, job.files, job.notes};
  result.stored = type.dtype == DType::i8 ? type.name : crest::name(type.dtype);
  result.bytes = bytes_of(made, job.files);
  if (format.file) {
    require_new(out);  // another program may have made it since the start
    rename_path(join_path(made, job.files[0]), out);
    sync_directory(parent_path(out));
    result.folder = parent_path(out), result.files = {staging.out().filename().string()};
  } else {
    staging.publish(false);
  }
  for (const char* next : format.next) result.next.push_back(replaced(next, "OUT", shell_path(out)));
  return result;
}

nlohmann::ordered_json to_json(const ExportResult& r) {
  const ModelConfig& c = r.config;
  return {{"folder", r.folder}, {"format", r.format},   {"stored", r.stored}, {"parameters", r.parameters},
          {"vocab", c.vocab},   {"context", c.context}, {"layers", c.layers}, {"heads", c.heads},
          {"width", c.width},   {"bias", c.bias},       {"tied", c.tied},     {"files", r.files},
          {"bytes", r.bytes},   {"notes", r.notes}};
}

}  // namespace crest
