#include "compare/measure_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/find.h"
#include "host/own_process.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "predict/defaults.h"
#include "profile/profile_summary.h"
#include "stats/ab.h"
#include "store/new_record.h"

namespace crest {

namespace {

constexpr int rounds_of_processes = 6;  // each process takes seconds to start

class ProcessPair {
 public:
  explicit ProcessPair(const CompareMeasureOptions& o) : o_(o), rates_(o.rates) {
    prepare(a_, o.a);
    prepare(b_, o.b);
  }

  MeasuredPair run() {
    Recorder recorder = o_.store.open();
    AbRule rule;
    rule.warmup_rounds = 0;
    rule.min_rounds = rounds_of_processes, rule.apart = true, rule.rounds_at_limit = 1;
    rule.max_rounds = 3 * rounds_of_processes;  // a turn takes far longer than its step
    rule.max_seconds = o_.max_seconds;
    if (o_.samples > 0)
      rule.min_rounds = rule.max_rounds = o_.samples, rule.max_seconds = 1e9, rule.target_relative_ci = 0;
    to_stderr("the two sides need different libraries: measuring in separate, interleaved processes ...\n");
    AbResult rounds = compare_interleaved({{"A", [&] { return turn(a_); }}, {"B", [&] { return turn(b_); }}}, rule);
    keep(a_, rounds, 0, recorder);
    keep(b_, rounds, 1, recorder);
    return {std::move(a_.record), std::move(b_.record), rounds.noise_floor};
  }

 private:
  struct Side {
    const char* name;
    std::vector<std::string> arguments;  // of crest profile
    std::vector<RunRecord> turns;
    RunRecord record;
  };

  void prepare(Side& s, const MeasurementOptions& measurement) {
    measurement.device.libraries.check();
    Device device = find_device(measurement.device.device, measurement.device.threads);
    const Recipe given = measurement.recipe.finish(default_model(device));
    const int64_t limit = limit_of_rank(given, device, measurement.device.limit(device));
    Recipe recipe = resolve(with_defaults(given, rank_device(given, device), limit), device);
    std::string model = folder_ / std::string(s.name) + ".toml";
    write_file_atomic(model, to_toml(recipe.model));
    s.arguments = {"profile",
                   "--json",
                   "--store=" + folder_ / "turns.db",
                   "--phase=" + o_.phase,
                   fmt::format("--warmup={}", o_.warmup),
                   fmt::format("--max-seconds={}", o_.max_seconds / (2 * rounds_of_processes)),
                   fmt::format("--seed={}", o_.seed),
                   device.kind == "cpu" ? "--device=cpu" : fmt::format("--device=cuda:{}", device.index),
                   fmt::format("--threads={}", device.threads)};
    if (!measurement.device.memory_limit.empty())
      s.arguments.push_back("--memory-limit=" + measurement.device.memory_limit);
    for (auto& [flag, value] : measurement.device.libraries.flags()) s.arguments.push_back(flag + "=" + value);
    for (auto& flag : recipe_flags(recipe, model)) s.arguments.push_back(flag);
  }

  double turn(Side& s) {
    to_stderr("{}, process {} ...\n", s.name, s.turns.size() + 1);
    std::vector<std::string> arguments = s.arguments;
    if (!rates_.empty()) arguments.push_back("--rates=" + rates_);
    run_own_process(arguments);
    Store store(folder_ / "turns.db", Store::Mode::read);
    s.turns.push_back(store.load(store.list().at(0).id));
    if (rates_.empty()) rates_ = rates_of(profile_of(s.turns.back()));
    return milliseconds(s.turns.back()) * 1e-3;
  }

  // The same device has the same limits, so later processes reuse the first ones.
  static std::string rates_of(const Profile& p) {
    std::vector<std::string> parts;
    for (auto& r : p.rates) parts.push_back(fmt::format("{}={}", r.name, r.per_second));
    return join(parts, ",");
  }
  static Profile profile_of(const RunRecord& r) {
    return profile_from_json(r.documents.at("profile"), "crest profile");
  }
  static double milliseconds(const RunRecord& r) { return r.result.at("step_ms_median").get<double>(); }

  void keep(Side& s, const AbResult& rounds, size_t contender, Recorder& recorder) {
    double median = rounds.samples[contender].median() * 1e3;
    s.record = *std::min_element(s.turns.begin(), s.turns.end(), [&](auto& x, auto& y) {
      return std::abs(milliseconds(x) - median) < std::abs(milliseconds(y) - median);
    });
    Profile p = profile_of(s.record);
    p.step_ms.clear(), p.throttled.clear(), s.record.samples.clear();
    size_t turn = 0;
    for (auto& taken : rounds.order) {
      if (taken.contender != contender) continue;
      const RunRecord& r = s.turns[turn++];
      bool throttled = std::any_of(r.samples.begin(), r.samples.end(), [](auto& row) { return row.throttled; });
      s.record.samples.push_back({milliseconds(r), taken.round, contender == 0 ? "a" : "b", throttled});
      p.step_ms.push_back(milliseconds(r)), p.throttled.push_back(throttled);
    }
    s.record.documents["profile"] = to_json(p);
    s.record.result = profile_result(p, text_at(s.record.device, "name"));
    if (rounds.noise_floor >= 0) s.record.result["noise_floor"] = rounds.noise_floor;
    store(s.record, recorder);
  }

  void store(RunRecord& r, Recorder& recorder) const {
    r.uid.clear(), r.name = o_.store.name, r.command = command_line();
    if (Store* store = recorder.store()) r.id = store->add(r);
  }

  const CompareMeasureOptions& o_;
  TemporaryFolder folder_;
  std::string rates_;
  Side a_{"A", {}, {}, {}}, b_{"B", {}, {}, {}};
};

}  // namespace

bool need_processes(const MeasurementOptions& a, const MeasurementOptions& b) {
  return a.device.libraries != b.device.libraries;
}

MeasuredPair measure_in_processes(const CompareMeasureOptions& options) { return ProcessPair(options).run(); }

}  // namespace crest
