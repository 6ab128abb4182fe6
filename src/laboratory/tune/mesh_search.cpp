#include "tune/mesh_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/timer.h"
#include "model/parameters.h"
#include "plan/plan_report.h"
#include "plan/schedule.h"
#include "plan/stage_plans.h"
#include "plan/training_use.h"
#include "predict/defaults.h"
#include "predict/step_time.h"
#include "terminal/fit_table.h"
#include "tune/mesh_bounds.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t micro_batches[] = {1, 2, 4};
// From the least recomputation to the most.
constexpr const char* recomputes[] = {"none", "pointwise", "selective", "full"};

// The memory of a plan grows with the micro batch and with less recomputation. Shards and a single
// micro step need other memory (buckets, no sums of gradients), so their plans are not compared.
struct Size {
  int64_t batch = 1;
  size_t level = 0;  // of recomputation
  bool least(const Size& other) const { return batch <= other.batch && level >= other.level; }
};

// Combinations with equal settings but recomputation.
struct Group {
  RecipeOptions options;
  std::string place;  // mesh, schedule, shards, and whether there are several micro steps
  Size size;
  MeshCandidate bounds;  // without recomputation; bytes with all of it
  double guess_ms = 0;   // decides the order only
};

class MeshSearch {
 public:
  MeshSearch(const TuneOptions& o, const Device& device, int64_t limit, const Calibration* calibration,
             const std::function<void(const std::string&)>& say)
      : o_(o),
        device_(device),
        limit_(limit),
        calibration_(calibration),
        say_(say),
        sheet_(*o.sheet),
        plain_(o.recipe.finish(default_model(device))),
        bounds_(plain_.model) {
    if (o.global_batch <= 0)
      fail_usage("a search for meshes needs the sequences of a step", "--global-batch",
                 "Give --global-batch N, or --mesh.");
    for (auto& text : o.vary)
      if (text != "mesh")
        fail_usage(fmt::format("'{}' is not varied with meshes", printable(text)), "--vary",
                   "Meshes, schedules, shards, recomputation and micro batches are. Omit it, or give --mesh.");
    if (o.within > 0)
      fail_usage("a search for meshes looks for the fastest only", "--within", "Omit it, or give --mesh.");
    if (o.recipe.has("data-parallel") || o.recipe.has("stages"))
      fail_usage("a search for meshes cuts the model itself", o.recipe.has("stages") ? "--stages" : "--data-parallel",
                 "Omit it, or give --mesh.");
    r_.ranks = plain_.ranks;
    // The defaults for one rank; a candidate's mesh replaces the ranks.
    Recipe one = plain_;
    one.ranks = 1, one.mesh = Mesh();
    one.batch = one.grad_accumulation = 1;
    one.recompute = "full";
    plain_.seq = with_defaults(one, device, limit, "", true).seq_length();
    const std::string precision = resolve(one, device).precision;
    peak_ = calibration ? calibration->times.rate(precision) : 0;
    if (peak_ <= 0) peak_ = sheet_.peak(precision).value_or(0);
    r_.tokens = o.global_batch * plain_.seq;
  }

  MeshSearchResult run() {
    add_groups();
    std::stable_sort(groups_.begin(), groups_.end(), [](auto& a, auto& b) {
      return std::pair(a.guess_ms, a.bounds.least_bytes) < std::pair(b.guess_ms, b.bounds.least_bytes);
    });
    say_(fmt::format("{} in {} groups of equal mesh, schedule, shards and micro batch ...",
                     format_number_of(int64_t(r_.combinations), "combination"), groups_.size()));
    for (auto& g : groups_) {
      if (o_.search_seconds > 0 && timer_.seconds() > o_.search_seconds)
        r_.not_tried += recompute_levels().size();
      else
        try_group(g);
    }
    r_.seconds = timer_.seconds();
    if (r_.best.empty())
      throw Error(Exit::does_not_fit,
                  fmt::format("none of the {} tried meshes fits {}", r_.combinations - r_.not_tried,
                              format_bytes(double(limit_))),
                  "crest tune", "Use more --ranks, a smaller model or a shorter --seq.");
    std::stable_sort(r_.best.begin(), r_.best.end(), [](auto& a, auto& b) { return a.ms < b.ms; });
    return std::move(r_);
  }

 private:
  std::vector<std::string> recompute_levels() const {
    return values("recompute", {std::begin(recomputes), std::end(recomputes)});
  }
  // The given value of a setting, else these.
  std::vector<std::string> values(const char* name, std::vector<std::string> all) const {
    return o_.recipe.has(name) ? o_.recipe.given.at(name) : all;
  }

  void add_groups() {
    const int ranks = r_.ranks;
    const int64_t layers = plain_.model.layers;
    for (int tensor = 1; tensor <= std::min(ranks, sheet_.node_gpus); ++tensor) {
      if (ranks % tensor || plain_.model.heads % tensor) continue;
      for (int pipeline = 1; pipeline <= std::min<int64_t>(layers, ranks / tensor); ++pipeline) {
        if (ranks / tensor % pipeline || o_.global_batch % (ranks / tensor / pipeline)) continue;
        const int data = ranks / tensor / pipeline;
        std::vector<std::string> schedules = {""}, shards = {""};
        if (pipeline > 1) {
          schedules = {"1f1b", "zero-bubble"};
          for (int parts : {2, 4, 8})
            if (int64_t(parts) * pipeline <= layers) schedules.push_back(fmt::format("interleaved:{}", parts));
          schedules = values("schedule-pipeline", schedules);
        }
        if (data > 1) shards = values("shard", {"none", "optimizer", "gradients", "weights"});
        for (auto& schedule : schedules)
          for (auto& shard : shards)
            for (int64_t batch : micro_batches) add_group(tensor, pipeline, data, schedule, shard, batch);
      }
    }
  }

  void add_group(int tensor, int pipeline, int data, const std::string& schedule, const std::string& shard,
                 int64_t batch) {
    const int64_t share = o_.global_batch / data;
    if (share % batch) return;
    Group g;
    g.options = o_.recipe;
    auto set = [&](const char* name, const std::string& value) {
      g.options.given[name] = {value};
      g.bounds.settings.emplace_back(name, value);
    };
    std::vector<std::string> axes;
    for (auto [axis, n] : {std::pair{"data", data}, {"tensor", tensor}, {"pipeline", pipeline}})
      if (n > 1) axes.push_back(fmt::format("{}={}", axis, n));
    set("mesh", join(axes, ","));
    if (!schedule.empty()) set("schedule-pipeline", schedule);
    g.place = fmt::format("{} {} {} {}", g.bounds.settings[0].second, schedule, shard, share > batch);
    g.size = {batch, 0};
    if (!shard.empty()) set("shard", shard);
    set("batch", std::to_string(batch));
    set("grad-accumulation", std::to_string(share / batch));
    g.options.given["seq"] = {std::to_string(plain_.seq)};
    const size_t n = recompute_levels().size();
    r_.combinations += n;
    try {
      const Recipe recipe = recipe_of(g, "none");
      g.bounds.least_ms = bounds_.least_ms(recipe, peak_), g.bounds.least_bytes = bounds_.least_bytes(recipe);
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      r_.not_allowed += n;
      return;
    }
    if (g.bounds.least_bytes > limit_) {
      r_.pruned_by_memory += n;
      return;
    }
    g.guess_ms = guess_ms(g, tensor, pipeline, data, shard, share);
    groups_.push_back(std::move(g));
  }

  Recipe recipe_of(const Group& g, const std::string& recompute) const {
    RecipeOptions options = g.options;
    options.given["recompute"] = {recompute};
    return resolve(options.finish(default_model(device_)), device_);
  }

  // Matmuls at 60% of the peak, sums over tensor ranks, and gradients and weights of the data ranks
  // at the links' rates, all exposed.
  double guess_ms(const Group& g, int tensor, int pipeline, int data, const std::string& shard, int64_t share) const {
    const double in_node = std::max(1.0, sheet_.link_bandwidth / 2), net = std::max(1.0, sheet_.network_bandwidth / 2);
    const double rows = double(share * plain_.seq), layers = double(plain_.model.layers) / pipeline;
    const double sums = tensor > 1 ? 8 * 2 * rows * double(plain_.model.width) * layers / in_node : 0;
    const double weights = double(parameter_count(plain_.model)) / tensor / pipeline;
    const double trips = shard == "weights" ? 2.0 * double(share) : 1;
    const double copies = data > 1 ? weights * (4 + 2 * trips) / net : 0;
    return g.bounds.least_ms / 0.6 + 1e3 * (sums + copies);
  }

  // The most recomputation first: if it does not fit, nothing does. Then from the least on.
  void try_group(const Group& g) {
    const std::vector<std::string> levels = recompute_levels();
    std::vector<size_t> order = {levels.size() - 1};
    for (size_t i = 0; i + 1 < levels.size(); ++i) order.push_back(i);
    for (size_t k = 0; k < order.size(); ++k) {
      const size_t left = order.size() - k;
      o_.check_interrupt();
      progress();
      if (!r_.best.empty() && g.bounds.least_ms >= fastest_) {
        r_.pruned_by_time += left;
        return;
      }
      Size size = g.size;
      size.level = order[k];
      std::vector<Size>& refused = refused_[g.place];
      const bool too_large = std::any_of(refused.begin(), refused.end(), [&](auto& s) { return s.least(size); });
      if (too_large && k == 0) {
        r_.pruned_by_memory += left;
        return;
      }
      if (too_large) {
        ++r_.pruned_by_memory;
        continue;
      }
      try {
        if (!try_combination(g, levels[order[k]])) {
          refused.push_back(size);
          ++r_.refused_by_memory;
          if (k > 0) continue;
          r_.pruned_by_memory += left - 1;
          return;
        }
        if (k == 0) continue;
        r_.pruned_by_recompute += left - 1;
        return;
      } catch (const Error& e) {
        if (e.code() != Exit::usage) throw;
        ++r_.not_allowed;
      }
    }
  }

  void progress() {
    if (timer_.seconds() < said_ + 5) return;
    said_ = timer_.seconds();
    const std::string fastest = r_.best.empty() ? "" : fmt::format(", the fastest {}", format_duration(fastest_ / 1e3));
    say_(fmt::format("{:>4.0f} s  {} predicted, {} too large{} ...", said_, r_.best.size(), r_.refused_by_memory,
                     fastest));
  }

  // Whether it fits.
  bool try_combination(const Group& g, const std::string& recompute) {
    const CompileOptions quick = {.verify = false};
    const Recipe recipe = recipe_of(g, recompute);
    const std::vector<CompiledSession> steps =
        distinct_stages(compile_phase(recipe, rank_device(recipe, device_), BenchPhase::step, quick), quick);
    auto less = [](auto& a, auto& b) { return a.limited_bytes() < b.limited_bytes(); };
    const auto most = std::max_element(steps.begin(), steps.end(), less);
    if (most->limited_bytes() > limit_) return false;
    std::vector<CompiledSession> wholes = steps;
    for (CompiledSession& whole : wholes) extend(whole, session_programs(recipe, training_use), quick);
    const auto whole = std::max_element(wholes.begin(), wholes.end(), less);
    if (whole->limited_bytes() > limit_) return false;
    std::vector<const CompiledSession*> compiled;
    for (const CompiledSession& s : steps) compiled.push_back(&s);
    const StepTime time = step_time(*most, calibration_, &sheet_, compiled);
    if (!time.step()) fail("meshes cannot be predicted: " + time.why_not, "crest tune", "Give another --device.");
    const PredictedStep& s = *time.step();
    MeshCandidate c = g.bounds;
    c.settings.emplace_back("recompute", recompute);
    c.ms = s.ms, c.low_ms = s.low_ms, c.high_ms = s.high_ms;
    c.bubble = s.pipeline ? s.pipeline->bubble.fraction() : 0;
    c.collectives_ms = s.collectives_ms, c.waiting_ms = s.waiting_ms;
    c.mfu = s.peak > 0 ? s.model_flops / s.ms * 1e3 / s.peak : 0;
    c.planned_bytes = whole->planned_bytes();
    fastest_ = r_.best.empty() ? c.ms : std::min(fastest_, c.ms);
    r_.best.push_back(std::move(c));
    return true;
  }

  const TuneOptions& o_;
  const Device& device_;
  int64_t limit_;
  const Calibration* calibration_;
  const std::function<void(const std::string&)>& say_;
  DataSheet sheet_;
  Recipe plain_;  // as given, not resolved
  MeshBounds bounds_;
  double peak_ = 0, fastest_ = 0, said_ = 0;
  std::vector<Group> groups_;
  std::map<std::string, std::vector<Size>> refused_;  // by Group::place
  MeshSearchResult r_;
  Timer timer_;
};

std::string settings_text(const MeshCandidate& c) {
  std::vector<std::string> parts;
  for (auto& [name, value] : c.settings) parts.push_back(name == "mesh" ? value : name + " " + value);
  return join(parts, ", ");
}

std::string command_of(const TuneOptions& o, const MeshCandidate& c) {
  GivenSettings given = o.recipe.given;
  given.erase("ranks");
  for (auto& [name, value] : c.settings) given[name] = {value};
  std::vector<std::string> flags;
  for (auto& row : recipe_settings())
    if (auto it = given.find(row.name); it != given.end())
      for (auto& value : it->second) flags.push_back(printed_word(row.flag() + "=" + value));
  return join(flags, " ");
}

Json to_json(const MeshCandidate& c, int64_t tokens) {
  Json settings = Json::object();
  for (auto& [name, value] : c.settings) settings[name] = value;
  return {{"settings", settings},
          {"predicted_ms", c.ms},
          {"predicted_ms_low", c.low_ms},
          {"predicted_ms_high", c.high_ms},
          {"tokens_per_second", 1e3 * double(tokens) / c.ms},
          {"mfu", c.mfu > 0 ? Json(c.mfu) : Json()},
          {"bubble", c.bubble},
          {"collectives_ms", c.collectives_ms},
          {"waiting_ms", c.waiting_ms},
          {"planned_bytes", c.planned_bytes},
          {"least_ms", c.least_ms},
          {"least_bytes", c.least_bytes}};
}

}  // namespace

bool searches_meshes(const TuneOptions& o, const Recipe& start, const Device& device) {
  const bool asked = std::find(o.vary.begin(), o.vary.end(), "mesh") != o.vary.end();
  if (asked && (!device.described || device.kind != "cuda" || !o.sheet))
    fail_usage("meshes are searched by prediction, for a GPU that is not here", "--vary", "Give --device h100.");
  return device.described && device.kind == "cuda" && o.sheet && !o.recipe.has("mesh") &&
         (asked || (start.ranks > o.sheet->node_gpus && o.global_batch > 0 && o.vary.empty()));
}

MeshSearchResult search_meshes(const TuneOptions& options, const Device& device, int64_t limit,
                               const Calibration* calibration, const std::function<void(const std::string&)>& say) {
  return MeshSearch(options, device, limit, calibration, say).run();
}

Json to_json(const TuneOptions& o, const MeshSearchResult& r) {
  Json candidates = Json::array();
  for (auto& c : r.best) candidates.push_back(to_json(c, r.tokens));
  return {{"ranks", r.ranks},
          {"tokens_per_step", r.tokens},
          {"best", to_json(r.best[0], r.tokens)},
          {"command", command_of(o, r.best[0])},
          {"candidates", candidates},
          {"combinations", r.combinations},
          {"predicted", r.best.size()},
          {"refused_by_memory", r.refused_by_memory},
          {"pruned_by_memory", r.pruned_by_memory},
          {"pruned_by_time", r.pruned_by_time},
          {"pruned_by_recompute", r.pruned_by_recompute},
          {"not_allowed", r.not_allowed},
          {"not_tried", r.not_tried},
          {"seconds", r.seconds}};
}

std::string text_of(const TuneOptions& o, const MeshSearchResult& r, size_t top, bool color, size_t width) {
  std::vector<FitColumn> columns = {{{"mesh and settings", Align::left}},
                                    {{"predicted"}, 2},
                                    {{"tokens/s of a GPU"}},
                                    {{"MFU"}, 1},
                                    {{"bubble"}, 1},
                                    {{"planned"}, 1}};
  std::vector<std::vector<std::string>> rows;
  for (auto& c : r.best) {
    if (rows.size() == top) break;
    rows.push_back({settings_text(c), format_duration(c.ms / 1e3),
                    format_count(1e3 * double(r.tokens) / c.ms / r.ranks), fmt::format("{:.1f}%", 100 * c.mfu),
                    fmt::format("{:.1f}%", 100 * c.bubble), format_bytes(double(c.planned_bytes))});
  }
  std::string text = fit_table(columns, rows, width, color);
  text += fmt::format(
      "\n{} combinations in {}: {} predicted, {} refused by the plan's memory; not planned: {} by a bound of memory, "
      "{} by a bound of time, {} because less recomputation fits, {} not allowed{}\n",
      r.combinations, format_duration(r.seconds), r.best.size(), r.refused_by_memory, r.pruned_by_memory,
      r.pruned_by_time, r.pruned_by_recompute, r.not_allowed,
      r.not_tried ? fmt::format(", {} left by --search-seconds", r.not_tried) : "");
  text += fmt::format(
      "Nothing was measured. The fastest takes {} to {} by its range.\n\nPlan it\n  crest plan {} --device {}\n",
      format_duration(r.best[0].low_ms / 1e3), format_duration(r.best[0].high_ms / 1e3), command_of(o, r.best[0]),
      o.sheet->name);
  return text;
}

}  // namespace crest
