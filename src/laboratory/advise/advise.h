// Advice on a model and its settings for a device: a table of rules, each with a source, a check,
// and the predicted (on request, measured) gain of the change.
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

// Step times in the log of a run.
struct RunWaits {
  int64_t steps = 0;
  double step_ms = 0, wait_ms = 0;  // sums
};
// Over the last 200 steps of the log. Throws if there is no readable log.
RunWaits waits_of_run(const std::string& folder);

// The recipe and device to give advice on.
struct AdviceCase {
  Recipe given;   // as the user gave it
  Recipe recipe;  // resolved
  Device device;
  int64_t limit = 0;  // bytes for a rank
  Mesh mesh;
  const Calibration* calibration = nullptr;  // null: none
  const DataSheet* sheet = nullptr;          // of the device; null: none
  std::optional<RunWaits> waits;             // of a run
};

// The data needed to predict the gain of a change.
enum class GainNeeds : uint8_t {
  flops,     // FLOP counts
  rates,     // also rates: a calibration or a data sheet
  tiles,     // how the device splits products into tiles: a data sheet
  measuring  // only a measurement shows it: alignment, kernels
};

// A finding of a rule.
struct Finding {
  std::string condition;                            // the reason for the change
  std::string change;                               // the advice
  std::optional<Recipe> recipe = std::nullopt;      // with the change, not resolved; none: Crest cannot run it
  bool other_model = false;                         // the change trains another model
  bool for_memory = false;                          // worth it even without a speedup
  std::optional<double> time_ratio = std::nullopt;  // by the formula in `change`
};

enum class RuleStatus : uint8_t { advice, holds, not_applicable };
const char* name(RuleStatus);

struct Checked {
  RuleStatus status = RuleStatus::not_applicable;
  std::string text;  // the reason
  std::vector<Finding> findings;
};

class Planner;
struct Rule {
  const char* id;
  const char* section;  // of rules_document, or another source
  const char* help;
  GainNeeds needs;
  Checked (*check)(const AdviceCase&, Planner&);
};
const std::vector<Rule>& rules();
// The document of the rules' sections.
extern const char* const rules_document;

// Time per token with a change, relative to the time without it, and the basis of the prediction.
struct PredictedRatio {
  std::optional<double> ratio;  // time with the change / time without it
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
  std::optional<int64_t> planned_bytes;  // of the recipe with the change
  std::optional<MeasuredRatio> measured;
  std::string not_measured;  // the reason
};

struct RuleResult {
  const Rule* rule;
  RuleStatus status;
  std::string text;
  std::vector<Advice> advice;
};

// Plans recipes for the rules, and each recipe only once.
class Planner {
 public:
  explicit Planner(const AdviceCase& c) : case_(c) {}
  // The training step of an unresolved recipe, for times. Usage errors if the device excludes it.
  const CompiledSession& session(const Recipe& given) { return *planned(given).step; }
  const CompiledSession& session() { return session(case_.given); }
  // The plan of crest train, for memory.
  int64_t planned_bytes(const Recipe& given) { return whole(given).planned_bytes(); }
  int64_t planned_bytes() { return planned_bytes(case_.given); }
  bool fits(const Recipe& given) { return whole(given).limited_bytes() <= case_.limit; }
  const std::vector<StepProduct>& products();
  // The largest micro batch within the limit; 0: none.
  int64_t largest_batch(const Recipe& given);
  PredictedRatio ratio(const Recipe& without, const Recipe& with, GainNeeds needs);
  // Milliseconds per token on the best available basis; none if only FLOPs are known.
  std::optional<double> ms_per_token(const Recipe& given);
  // By the data sheet, in whole tiles and waves; none without a sheet.
  std::optional<double> tiled_ms_per_token(const Recipe& given);

 private:
  struct Planned {
    std::string key;
    std::unique_ptr<CompiledSession> step, whole;  // whole: null until memory is requested
  };
  Planned& planned(const Recipe& given);
  const CompiledSession& whole(const Recipe& given);
  std::optional<double> calibrated_ms(const CompiledSession& session) const;

  const AdviceCase& case_;
  std::deque<Planned> planned_;  // a deque never moves its elements
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
  int64_t planned_bytes = 0;  // of the given settings
  size_t count(RuleStatus status) const;
};

AdviceReport advise(const AdviceCase& subject, const AdviceOptions& options,
                    const std::function<void(const std::string&)>& say);

// docs/reference/contract.md, advise.
nlohmann::ordered_json to_json(const AdviceCase& subject, const AdviceReport& report);
std::string text_of(const AdviceCase& subject, const AdviceReport& report, size_t width);

}  // namespace crest
