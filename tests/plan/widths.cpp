// Every usual width has kernels, up to those of the largest published models.
#include <gtest/gtest.h>

#include "device/find.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"

namespace crest::test {

namespace {

Recipe wide(const char* preset, int64_t width, const char* precision) {
  Recipe r;
  r.model = load_model_config(preset);
  r.model.layers = 1, r.model.width = width, r.model.head_dim = 128, r.model.heads = width / 128;
  r.model.kv_heads = r.model.kv_heads < 4 ? 8 : r.model.heads;  // grouped queries as in the preset
  r.model.ff = 512, r.model.vocab = 256, r.model.context = 64;
  r.batch = 1, r.seq = 64, r.precision = precision;
  return r;
}

int64_t planned(const Recipe& r, const Device& device) {
  SessionUse use = {.train = true, .update = true, .validation = true};
  use.sampling = true;
  return compile(r, device, session_programs(resolve(r, device), use), {.verify = false}).planned_bytes();
}

}  // namespace

// 15360 and 16384 once had no kernel for the gradient of a norm.
TEST(Widths, UpTo32768HaveKernels) {
  const Device gpu = find_device("h100", 1), cpu = find_device("cpu", 1);
  for (int64_t width : {14336, 15360, 16384, 20480, 24576, 32768})
    for (const char* preset : {"llama-nano", "nano"})
      for (const char* precision : {"bf16", "fp32", "fp8"}) {
        Recipe r = wide(preset, width, precision);
        EXPECT_GT(planned(r, gpu), 12 * width * width) << preset << " " << width << " " << precision;
        r.fusion = "off";
        EXPECT_GT(planned(r, gpu), 12 * width * width) << preset << " " << width << " " << precision;
        if (std::string_view(precision) != "fp32") continue;
        EXPECT_GT(planned(r, cpu), 12 * width * width) << preset << " " << width << " on a CPU";
      }
}

// The shape of Llama 3.1 405B.
TEST(Widths, TheLargestPublishedModelIsPlanned) {
  Recipe r;
  r.model = load_model_config("llama-8B");
  r.model.layers = 126, r.model.width = 16384, r.model.ff = 53248, r.model.heads = 128, r.model.kv_heads = 8;
  r.model.head_dim = 128, r.batch = 1, r.seq = 1024, r.precision = "bf16";
  const Device gpu = find_device("h100", 1);
  const SessionUse use = {.train = true, .update = true};
  const CompiledSession s = compile(r, gpu, session_programs(resolve(r, gpu), use), {.verify = false});
  // bf16 weights, fp32 gradients, and for AdamW two fp32 moments and 16 more bits of masters.
  const double parameters = 405'853'388'800, bytes = 2 + 4 + 8 + 2;
  EXPECT_NEAR(double(s.planned_bytes()), parameters * bytes, 0.001 * parameters * bytes);
}

}  // namespace crest::test
