// What to change in a model and its settings for a device: a table of rules, each with its source,
// a check, and what the change is predicted (and, on request, measured) to bring.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/calibration.h"
#include "predict/products.h"
#include "program/mesh.h"
#include "stats/ab.h"

namespace crest {

// What a run logged about its steps.
struct RunWaits {
  int64_t steps = 0;
  double step_ms = 0, wait_ms = 0;  // sums
};
// Of the last 200 steps of a run's log. Throws if there is no log that can be read.
RunWaits waits_of_run(const std::string& folder);

// The subject of an advice.
struct AdviceCase {
  Recipe given;   // as the user gave it
  Recipe recipe;  // resolved
  Device device;
  int64_t limit = 0;  // bytes that a rank may plan
  Mesh mesh;
  const Calibration* calibration = nullptr;  // null: none
  const DataSheet* sheet = nullptr;          // of the device; null: none
  std::optional<RunWaits> waits;             // of a run
};

// What must be known to predict the gain of a change.
enum class GainNeeds : uint8_t {
  flops,     // how much is computed
  rates,     // and how fast: a calibration, or a data sheet
  tiles,     // how the device divides products: a data sheet
  measuring  // what no formula of Crest knows: alignment, kernels
};

// What a rule found.
struct Finding {
  std::string condition;                            // what holds here
  std::string change;                               // what to do
  std::optional<Recipe> recipe = std::nullopt;      // the changed one, not resolved; none: Crest cannot run the change
  bool other_model = false;                         // it changes what is trained
  bool for_memory = false;                          // worth it without any gain of time
  std::optional<double> time_ratio = std::nullopt;  // by a formula that the change names
};

enum class RuleStatus : uint8_t { advice, holds, not_applicable };
const char* name(RuleStatus);

struct Checked {
  RuleStatus status = RuleStatus::not_applicable;
  std::string text;  // why
  std::vector<Finding> findings;
};

class Planner;
struct Rule {
  const char* id;
  const char* section;  // of the document; or another source
  const char* help;
  GainNeeds needs;
  Checked (*check)(const AdviceCase&, Planner&);
};
const std::vector<Rule>& rules();
// The document that the sections are of.
extern const char* const rules_document;

// Time per token of two recipes, and where it is from.
struct PredictedRatio {
  std::optional<double> ratio;  // with the change over without
  std::string basis;            // "calibration", "floors", "flops", "formula"; "": not predicted
  std::string why_not;
};

struct MeasuredRatio {
  double ratio = 1;
  Interval interval;
  Verdict verdict = Verdict::cannot_tell;
  double noise_floor = 0;  // negative: too few rounds for a verdict
  int rounds = 0;
  bool few_rounds() const { return noise_floor < 0; }
};

struct Advice {
  Finding finding;
  PredictedRatio predicted;
  std::optional<int64_t> planned_bytes;  // of the changed recipe
  std::optional<MeasuredRatio> measured;
  std::string not_measured;  // why
};

struct RuleResult {
  const Rule* rule;
  RuleStatus status;
  std::string text;
  std::vector<Advice> advice;
};

// Plans recipes for the rules; each once.
class Planner {
 public:
  explicit Planner(const AdviceCase& c) : case_(c) {}
  // The training step of a recipe that is not resolved: what time is about. Usage errors if the
  // device excludes it.
  const CompiledSession& session(const Recipe& given) { return *planned(given).step; }
  const CompiledSession& session() { return session(case_.given); }
  // What crest train plans: what memory is about.
  int64_t planned_bytes(const Recipe& given) { return whole(given).planned_bytes(); }
  int64_t planned_bytes() { return planned_bytes(case_.given); }
  bool fits(const Recipe& given) { return whole(given).limited_bytes() <= case_.limit; }
  const std::vector<StepProduct>& products();
  // The largest micro batch of the recipe within the limit; 0: none.
  int64_t largest_batch(const Recipe& given);
  PredictedRatio ratio(const Recipe& without, const Recipe& with, GainNeeds needs);
  // Milliseconds a token by the best basis that there is; none: nothing but FLOPs is known.
  std::optional<double> ms_per_token(const Recipe& given);
  // By the data sheet, with whole tiles and waves; none without a sheet.
  std::optional<double> tiled_ms_per_token(const Recipe& given);

 private:
  struct Planned {
    std::string key;
    std::unique_ptr<CompiledSession> step, whole;  // whole: null until memory is asked for
  };
  Planned& planned(const Recipe& given);
  const CompiledSession& whole(const Recipe& given);
  std::optional<double> calibrated_ms(const CompiledSession& session) const;

  const AdviceCase& case_;
  std::deque<Planned> planned_;  // its elements stay where they are
  std::optional<std::vector<StepProduct>> products_;
};

struct AdviceOptions {
  bool measure = false;
  double max_seconds = 5;  // per measured change
  uint64_t seed = 1337;
  std::function<void()> check_interrupt = [] {};
};

struct AdviceReport {
  std::vector<RuleResult> rules;
  int64_t planned_bytes = 0;  // of the settings as given
  size_t count(RuleStatus status) const;
};

AdviceReport advise(const AdviceCase& subject, const AdviceOptions& options,
                    const std::function<void(const std::string&)>& say);

// docs/reference/contract.md, advise.
nlohmann::ordered_json to_json(const AdviceCase& subject, const AdviceReport& report);
std::string text_of(const AdviceCase& subject, const AdviceReport& report, size_t width);

}  // namespace crest
