#include "model/recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "model/config_files.h"

namespace crest {

void validate(const Recipe& r) {
  validate(r.model, "--model " + r.model.name);
  if (r.seq < 0 || r.seq_length() > r.model.context)
    fail_usage(fmt::format("sequence length {} exceeds the model's context of {}", r.seq_length(), r.model.context),
               "--seq", "Use a shorter --seq, or give the model a longer --context.");
  if (r.grad_dtype == "bf16" && (r.policy != "pure" || r.precision == "fp32" || r.precision == "tf32"))
    fail_usage("--grad-dtype bf16 needs --policy pure with bf16 or fp16", "--grad-dtype");
  if (r.precision == "fp8" && r.policy != "pure")
    fail_usage("--precision fp8 needs --policy pure", "--policy",
               "The weights of fp8 are bf16 with fp32 master weights. Leave out --policy.");
  if (r.ranks > 1 && r.data_parallel > 1)
    fail_usage(fmt::format("both --ranks {} and --data-parallel {} were given", r.ranks, r.data_parallel), "--ranks",
               "Use --ranks for processes, or --data-parallel for threads of one process.");
  if (r.layout().ranks() != r.all_ranks())
    fail_usage(fmt::format("{} has {}, but there are {}", r.mesh.text(), format_number_of(r.mesh.ranks(), "rank"),
                           r.all_ranks()),
               "--mesh", "The product of the axes is the number of ranks.");
}

namespace {

Setting by_functions(Setting row, SettingType type, SettingValue (*get)(const Setting&, const void*),
                     void (*set)(const Setting&, void*, const SettingValue&)) {
  row.type = type, row.get = get, row.set = set;
  return row;
}

Recipe& recipe(void* object) { return *static_cast<Recipe*>(object); }
const Recipe& recipe(const void* object) { return *static_cast<const Recipe*>(object); }

}  // namespace

const std::vector<Setting>& model_settings() {
  const char* group = "Model and batch";
  constexpr Effect::Where amount = Effect::amount;
  static const std::vector<const char*> head = {"wte", "lm_head", "loss"};
  static const std::string model_help =
      "preset (" + join(preset_names(), ", ") + "), TOML file, or folder with a Hugging Face config.json";
  static const std::vector<Setting> rows = {
      by_functions(
          {.name = "model",
           .group = group,
           .help = model_help.c_str(),
           .default_value = "nano on a CPU, micro on a GPU",
           .example = "gpt2-124M",
           .common = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::all, Effect::changed, {}, nullptr, true}}},
          SettingType::text, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.name); },
          [](const Setting&, void* o, const SettingValue& v) {
            recipe(o).model_source = std::get<std::string>(v);
            recipe(o).model = load_model_config(recipe(o).model_source);
          }),
      by_functions(
          {.name = "vocab",
           .group = group,
           .help = "vocabulary size",
           .unit = "tokens",
           .default_value = "the data's, else the model's",
           .min = 1,
           .max = double(INT32_MAX),
           .resume = OnResume::refuses,
           .effects = {{Effect::work, Effect::anywhere, head}}},
          SettingType::whole, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.vocab); },
          [](const Setting&, void* o, const SettingValue& v) {
            recipe(o).model.vocab = std::get<int64_t>(v), recipe(o).vocab_given = true;
          }),
      by_functions(
          {.name = "context",
           .group = group,
           .help = "maximum sequence length of the model",
           .unit = "tokens",
           .default_value = "the model's",
           .min = 1,
           .max = double(1 << 24),
           .identity = false,  // the model's sizes identify a measurement already
           .resume = OnResume::refuses,
           .effects = {{Effect::all, Effect::amount, {}, nullptr, true}}},
          SettingType::whole, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.context); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.context = std::get<int64_t>(v); }),
      by_functions(
          {.name = "window",
           .group = group,
           .help = "sliding-window attention: each token sees this many tokens, itself included (0: all). Changes the "
                   "layers with a window, or all if none has one",
           .unit = "tokens",
           .default_value = "the model's, 0 for presets",
           .min = 0,
           .max = double(1 << 24),
           .identity = false,  // part of the sizes, like the context
           .resume = OnResume::refuses,
           .effects = {{Effect::work, Effect::attention}}},
          SettingType::whole,
          [](const Setting&, const void* o) { return SettingValue(recipe(o).model.widest_window()); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.set_window(std::get<int64_t>(v)); }),
      by_functions(
          {.name = "dropout",
           .group = group,
           .help = "dropout probability",
           .default_value = "the model's, 0 for presets",
           .min = 0,
           .max = 1,
           .below = true,
           .effects = {{Effect::work, Effect::instructions}}},
          SettingType::number, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.dropout); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.dropout = std::get<double>(v); }),
      by_functions(
          {.name = "lora",
           .group = group,
           .help = "rank of low-rank adapters (LoRA) to train; the weights of --init stay as they are. 0: train all "
                   "weights. The default --lr of adapters is 2e-4 with adamw, less in steps of fewer than 1024 tokens",
           .default_value = "0",
           .min = 0,
           .max = 65536,
           .common = true,
           .newer = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::all, Effect::changed, {}, nullptr, true}}},
          SettingType::whole, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.lora.rank); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.lora.rank = std::get<int64_t>(v); }),
      by_functions(
          {.name = "lora-qkv",
           .group = group,
           .help = "rank of the adapters of attn.qkv, one matrix here (adapters of peft with three A: three times "
                   "--lora); 0: as --lora",
           .default_value = "0",
           .min = 0,
           .max = 65536,
           .newer = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::all, Effect::changed, {}, nullptr, true}}},
          SettingType::whole, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.lora.qkv_rank); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.lora.qkv_rank = std::get<int64_t>(v); }),
      by_functions(
          {.name = "lora-alpha",
           .group = group,
           .help = "adapters are scaled by alpha / rank (--lora-scale); 0: twice the rank",
           .default_value = "0",
           .min = 0,
           .max = 1e6,
           .newer = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::work, Effect::anywhere}}},
          SettingType::number, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.lora.alpha); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.lora.alpha = std::get<double>(v); }),
      by_functions(
          {.name = "lora-scale",
           .group = group,
           .help = "factor of the adapters: alpha / rank (rank), or alpha / sqrt(rank) (sqrt; peft's use_rslora)",
           .default_value = "rank",
           .choices = {"rank", "sqrt"},
           .newer = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::work, Effect::anywhere}}},
          SettingType::text,
          [](const Setting&, const void* o) {
            return SettingValue(std::string(recipe(o).model.lora.rank_stabilized ? "sqrt" : "rank"));
          },
          [](const Setting&, void* o, const SettingValue& v) {
            recipe(o).model.lora.rank_stabilized = std::get<std::string>(v) == "sqrt";
          }),
      by_functions(
          {.name = "lora-targets",
           .group = group,
           .help =
               "linear layers with adapters: attention, mlp, head, or some of attn.qkv, attn.proj, mlp.fc, mlp.gate, "
               "mlp.up, mlp.proj",
           .default_value = "attention,mlp",
           .example = "attention",
           .commas = true,
           .newer = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::all, Effect::changed, {}, nullptr, true}}},
          SettingType::text, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.lora.targets); },
          [](const Setting&, void* o, const SettingValue& v) {
            recipe(o).model.lora.targets = std::get<std::string>(v);
          }),
      by_functions(
          {.name = "lora-dropout",
           .group = group,
           .help = "dropout probability of the adapters' inputs",
           .default_value = "0",
           .min = 0,
           .max = 1,
           .below = true,
           .newer = true,
           .effects = {{Effect::work, Effect::instructions}}},
          SettingType::number, [](const Setting&, const void* o) { return SettingValue(recipe(o).model.lora.dropout); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).model.lora.dropout = std::get<double>(v); }),
      setting<&Recipe::batch>({.name = "batch",
                               .group = group,
                               .help = "sequences per micro batch",
                               .unit = "sequences",
                               .min = 1,
                               .max = double(1 << 24),
                               .common = true,
                               .effects = {{Effect::all, amount, {}, nullptr, true}}}),
      by_functions(
          {.name = "seq",
           .group = group,
           .help = "tokens per sequence",
           .unit = "tokens",
           .default_value = "the context, at most 4096, halved until a batch of 1 fits",
           .min = 1,
           .max = double(1 << 24),
           .common = true,
           .resume = OnResume::refuses,
           .effects = {{Effect::all, amount, {}, nullptr, true}}},
          SettingType::whole, [](const Setting&, const void* o) { return SettingValue(recipe(o).seq_length()); },
          [](const Setting&, void* o, const SettingValue& v) { recipe(o).seq = std::get<int64_t>(v); }),
  };
  return rows;
}

}  // namespace crest
