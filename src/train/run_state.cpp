#include "train/run_state.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "train/checkpoint.h"
#include "train/safetensors_folder.h"
#include "train/weights_io.h"

namespace crest {

void save(Engine& engine, const RunState& state, const std::string& root, int keep, const std::string& config_toml,
          const Tokenizer* tokenizer, const Report& warn) {
  const Scalars& s = engine.rank(0).scalars();
  const Recipe& r = engine.session().recipe;
  CheckpointContents contents;
  contents.step = state.step;
  Json j = {{"step", state.step},
            {"total_steps", state.total_steps},
            {"seed", state.seed},
            {"threads", state.threads},
            {"samples", state.step * r.grad_accumulation * r.data_parallel * r.batch},
            {"adam_step", s.adam_step},
            {"loss_scale", s.loss_scale},
            {"good_steps", s.good_steps},
            {"skipped", s.skipped}};
  contents.state = j.dump();
  contents.files = model_files(r.model, tokenizer);
  contents.files["config.toml"] = config_toml;
  CanonicalWeights weights = gather_weights(engine.rank(0));
  CanonicalWeights optimizer = gather_optimizer(engine.rank(0));
  contents.weights = weights.tensors;
  contents.optimizer = optimizer.tensors;
  SaveResult result = save_checkpoint(contents, root, keep);
  for (auto& w : result.warnings) warn(w);
}

RunState restore(Engine& engine, const std::string& root, const Report& warn) {
  auto checkpoint = find_checkpoint(root, warn);
  if (!checkpoint)
    fail("no checkpoint to continue from", printable(root),
         "Start the run again without --resume (add --overwrite to replace it).");
  load_weights(engine.rank(0), *checkpoint);
  load_optimizer(engine.rank(0), *checkpoint);
  Json j = parse_json_guarded(checkpoint->state(), {}, checkpoint->path() + "/state.json");
  auto get = [&](const char* key) {
    if (!j.contains(key) || !j[key].is_number())
      fail(fmt::format("key '{}' is missing", key), checkpoint->path() + "/state.json");
    return j[key];
  };
  Scalars& s = engine.rank(0).scalars();
  s.adam_step = get("adam_step");
  s.loss_scale = get("loss_scale");
  s.good_steps = get("good_steps");
  s.skipped = get("skipped");
  engine.broadcast();
  RunState state;
  state.step = get("step");
  state.total_steps = get("total_steps");
  state.seed = get("seed").get<uint64_t>();
  state.threads = get("threads");
  const Recipe& r = engine.session().recipe;
  int64_t expected = state.step * r.grad_accumulation * r.data_parallel * r.batch;
  if (get("samples").get<int64_t>() != expected)
    fail(fmt::format("the checkpoint was made with {} samples a step, this recipe has {}",
                     state.step ? get("samples").get<int64_t>() / state.step : 0,
                     r.grad_accumulation * r.data_parallel * r.batch),
         checkpoint->path(),
         "Keep batch x grad-accumulation x data-parallel, so that the order of the data is continued exactly.");
  return state;
}

void load_initial_weights(Engine& engine, const std::string& path) {
  load_weights(engine.rank(0), WeightsFolder::open(path));
  engine.broadcast();
}

}  // namespace crest
