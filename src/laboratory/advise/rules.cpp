#include "advise/rules.h"

#include <fmt/format.h>

#include "core/text.h"
#include "plan/recipe_settings.h"
#include "predict/known_effects.h"

namespace crest {

const char* const rules_document = "Software Tune Up For The Best Performance (Stas Bekman)";

const std::vector<Rule>& rules() {
  using enum GainNeeds;
  static const std::vector<Rule> table = {
      {"vocabulary", "Final recommendations for sizing, 1", "the vocabulary is a multiple of 64", measuring,
       rule::vocabulary},
      {"micro-batch", "Final recommendations for sizing, 2; Batch sizes",
       "the micro batch is as large as possible; it needs no power of two", rates, rule::micro_batch},
      {"tokens", "Final recommendations for sizing, 3 (b*s)", "tokens of a micro batch are an aligned number",
       measuring, rule::tokens},
      {"head-size", "Final recommendations for sizing, 3 (h/a); Flash attention",
       "the head size is aligned, unless flash attention takes care of it", measuring, rule::head_size},
      {"head-ratio", "Number and size of attention heads", "few large heads rather than many small ones", measuring,
       rule::head_ratio},
      {"width-over-ranks", "Final recommendations for sizing, 3 (h/t)",
       "the width of each tensor parallel rank is aligned", measuring, rule::width_over_ranks},
      {"heads-over-ranks", "Final recommendations for sizing, 4 ((b*a)/t)",
       "tensor parallel ranks share the heads evenly", measuring, rule::heads_over_ranks},
      {"tensor-ranks", "Final recommendations for sizing, 5", "as few tensor parallel ranks as possible", measuring,
       rule::tensor_ranks},
      {"product-alignment", "Vector and matrix size divisibility",
       "M, N and K of matrix products are multiples of what the device's generation and the type need", measuring,
       rule::product_alignment},
      {"mlp-width", "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489), SwiGLU",
       "the width of a SwiGLU is aligned: 8/3 of the model's width seldom is", measuring, rule::mlp_width},
      {"tile-quantization", "Tile and wave quantization", "results divide into whole tiles", tiles,
       rule::tile_quantization},
      {"wave-quantization", "Tile and wave quantization", "tiles fill whole waves of the multiprocessors", tiles,
       rule::wave_quantization},
      {"fallback-kernels", "Vector and matrix size divisibility", "no instruction runs in a slow kernel", measuring,
       rule::fallback_kernels},
      {"mixed-precision", "How To Improve Speed and Save Memory", "16-bit floats where the device has units for them",
       rates, rule::mixed_precision},
      {"flash-attention", "How To Improve Speed and Save Memory", "flash attention", rates, rule::flash_attention},
      {"fusion", "Anatomy of Model's Operations", "element-wise operations are fused: they are bound by memory", rates,
       rule::fusion},
      {"recompute", "Gradient checkpointing", "recompute no more than memory requires; larger batches pay for it",
       flops, rule::recompute},
      {"accumulation", "Batch sizes; Gradient Accumulation",
       "a larger micro batch before more accumulation, at the same global batch", rates, rule::accumulation},
      {"fused-optimizer", "Memory-efficient optimizers", "one kernel updates all parameters", rates,
       rule::fused_optimizer},
      {"optimizer-memory", "Memory-efficient optimizers", "a smaller optimizer state where memory is short", rates,
       rule::optimizer_memory},
      {"data-loading", "How To Improve Speed and Save Memory", "steps do not wait for data", rates, rule::data_loading},
      {"pipeline-bubble", "Gradient Accumulation", "enough micro steps to fill a pipeline", flops,
       rule::pipeline_bubble},
      {"sharded-optimizer", "How To Improve Speed and Save Memory",
       "ZeRO where memory is short: it saves memory, not time", rates, rule::sharded_optimizer},
  };
  return table;
}

namespace rule {

Recipe with(Recipe recipe, const std::string& setting, const std::string& value) {
  settings_of(recipe).apply({{setting, {value}}});
  return recipe;
}

std::string no_tensor_cores(const AdviceCase& c) {
  if (c.device.kind != "cuda") return "the rule is about tensor cores, and a CPU has none";
  if (c.recipe.precision == "fp32") return "fp32 does not use tensor cores";
  return "";
}

static int64_t element_bytes(const AdviceCase& c) {
  return c.recipe.precision == "tf32" ? 4 : c.recipe.precision == "fp8" ? 1 : 2;
}

// Full speed needs operand sizes in multiples of these bytes, by the device's generation.
struct Alignment {
  int64_t bytes;
  std::string source;
};
static Alignment alignment_of(const AdviceCase& c) {
  const int sm = c.device.sm;
  const std::string guide = "NVIDIA, Matrix Multiplication Background User's Guide, table 1";
  if (sm == 80) return {128, guide + ", for the A100"};
  if (sm < 90 || sm >= 120) return {16, guide};
  if (sm >= 100) return {128, "as on compute capability 9.0; not measured on this one"};
  const bool half = c.recipe.precision == "bf16" || c.recipe.precision == "fp16";
  return {128, (half ? "measured: " : "as measured in bf16: ") + std::string(hopper_alignment.text)};
}

int64_t aligned_elements(const AdviceCase& c) { return alignment_of(c).bytes / element_bytes(c); }
int64_t needed_elements(const AdviceCase& c) { return 16 / element_bytes(c); }

std::string alignment_text(const AdviceCase& c) {
  const Alignment a = alignment_of(c);
  return fmt::format("{} bytes, {} elements of {}, on compute capability {}.{} ({})", a.bytes, aligned_elements(c),
                     c.recipe.precision, c.device.sm / 10, c.device.sm % 10, a.source);
}

}  // namespace rule

}  // namespace crest
