// crest score: the probability of given texts, for evaluations by other programs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/text_io.h"
#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "core/to_stderr.h"
#include "inference/precision.h"
#include "inference/score_model.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

constexpr uint64_t max_pairs_bytes = uint64_t(1) << 30;

struct ScoreFlags {
  ScoreOptions score;
  std::string file = "-", base;
  DeviceOptions device;
  bool json = false;
};

int run_score(ScoreFlags& o) {
  ScoreOptions& s = o.score;
  if (s.run.empty())
    fail_usage("no model given", "--run", "Give a run, a checkpoint, or a folder with config.json and safetensors.");
  if (o.file == "-" && isatty(STDIN_FILENO))
    fail_usage("standard input is a terminal", "crest score", "Pipe pairs into it, or name a file of them.");
  const std::string where = input_name(o.file);
  const auto texts = parse_scored_texts(read_input(o.file, max_pairs_bytes), where);
  LoadedModel model = open_model_of_command(s.run, o.base);
  s.device = o.device.find();
  s.memory_limit = o.device.limit(s.device);
  ModelScorer scorer(s, model, texts, [&](size_t i) { return place_of_line(where, i); });
  nlohmann::ordered_json scores = nlohmann::ordered_json::array();
  int64_t tokens = 0, cut = 0;
  Timer timer;
  for (size_t i = 0; i < scorer.texts(); ++i) {
    const Score score = scorer.score(i);
    tokens += score.tokens, cut += score.cut > 0;
    if (o.json) {
      scores.push_back(to_json(score));
      continue;
    }
    write_output(to_json(score).dump() + "\n");
  }
  const double seconds = timer.seconds();
  to_stderr("{}, {} in {} ({} on {})\n", format_number_of(int64_t(texts.size()), "pair"),
            format_number_of(tokens, "token"), format_duration(seconds), inference_text(scorer.recipe()),
            s.device.name);
  if (cut)
    to_stderr("crest: warning: {} cut at the left: the model's context is {}\n",
              cut == 1 ? "1 pair was" : fmt::format("{} pairs were", cut), scorer.context());
  if (o.json)
    print_json({{"cut", cut},
                {"device", s.device.kind},
                {"model", model.config.name},
                {"pairs", scores},
                {"precision", scorer.recipe().precision},
                {"run", s.run},
                {"seconds", seconds},
                {"step", model.step >= 0 ? nlohmann::ordered_json(model.step) : nlohmann::ordered_json()},
                {"tokens", tokens},
                {"weights", s.weights}});
  return 0;
}

}  // namespace

std::function<int()> setup_score(CLI::App& app) {
  auto o = std::make_shared<ScoreFlags>();
  app.add_option("FILE", o->file,
                 "lines {\"context\": TEXT, \"continuation\": TEXT} or {\"text\": TEXT}; - (default): standard input");
  app.add_option("--run", o->score.run, "run, checkpoint, or folder with config.json and safetensors")
      ->type_name("RUN");
  add_base_option(app, o->base);
  add_precision_options(app, o->score);
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  return [o] { return run_score(*o); };
}

}  // namespace crest
