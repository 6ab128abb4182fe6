// Why two runs differ. Splits the difference in step time into causes. Compares memory by category
// and block, and lists differences in recipe, device, versions and kernels. Plain data for
// terminal, JSON and reports.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/attribution.h"
#include "stats/noise.h"
#include "store/record.h"

namespace crest {

// The inputs of a time. The first six are switched from A to B one at a time, in every order
// (compare/split.h). The others are plain differences.
enum class Factor : uint8_t {
  flops,          // FLOPs
  rate,           // arithmetic rate of the device: changes with precision and device
  bytes,          // memory traffic
  bandwidth,      // changes with the device
  efficiency,     // time over the floor: changes with kernel and shape
  clocks,         // the same device at another clock
  communication,  // between ranks
  unsplit,        // kernel time not explained by its work, or with work recorded on one side only
  idle,           // nothing runs: launches and gaps
  overlap,        // work done at the same time as other work
  residual,       // step time outside the profiled intervals
};
inline constexpr int factor_count = 11;
const char* name(Factor factor);   // "flops": JSON
const char* label(Factor factor);  // "arithmetic work (FLOPs)": people
using FactorMs = std::array<double, factor_count>;

struct WaterfallBar {
  Factor factor = Factor::residual;
  double ms = 0;            // negative: B is faster. The bars sum to b.step_ms - a.step_ms
  double ms_per_token = 0;  // the same split of step_ms / tokens; 0: tokens of a step unknown
  std::string detail;       // "12.3 -> 11.9 TFLOP"
};

// One side of the comparison in a few figures; 0 or empty: unknown.
struct ComparedRun {
  std::string title;  // "a", "b", or the run's name
  std::string uid, name, kind, phase, device;
  double step_ms = 0;  // median, not profiled
  Interval step_interval;
  int64_t samples = 0, tokens = 0, launches = 0;
  double tokens_per_second = 0;
  double busy_ms = 0, idle_ms = 0;
  int64_t planned_bytes = 0, measured_peak_bytes = 0, device_peak_bytes = 0;
  bool profiled = false;         // has rows to join
  bool has_instructions = true;  // rows are instructions; false: kernel classes (an imported trace)
  bool recipe_known = false;     // complete: Crest recorded the run
  bool out_of_memory = false;    // it did not fit
  bool predicted = false;        // by crest plan --as-profile
};

// A difference. Sections in order: recipe, device, versions, kernels, conditions.
struct Difference {
  std::string section, key, a, b;
};

// Instructions of a group with nothing but time different.
struct Use {
  std::string op, kernel, arithmetic, type;
  int64_t instructions = 0;
  auto operator<=>(const Use&) const = default;
};

// One side of a group of instructions, over all layers and calls of a step.
struct GroupSide {
  int64_t instructions = 0;  // rows
  int64_t calls = 0;
  int layers = 0;
  double ms = 0, floor_ms = 0, flops = 0, bytes = 0;
  std::vector<std::string> ops;         // "12 x matmul", most time first
  std::vector<std::string> kernels;     // Crest's names, most time first
  std::vector<std::string> arithmetic;  // "bf16", by FLOPs
  std::vector<std::string> types;       // dtypes of the results, most time first
  std::vector<std::string> classes;     // operation classes, most time first
  std::vector<Use> uses;                // in order of names
  std::string type;                     // result of the slowest instruction
  bool quadratic = false;               // a result has two dimensions of sequence length (T x T)
};

// Measured time over floor on both sides, and the floor used to compare them (the mean over the
// orders of switching, compare/split.h): floor_ms * (b - a) is the part of Factor::efficiency. 0:
// unknown.
struct Slowdowns {
  double a = 0, b = 0, floor_ms = 0;
};

// A group of instructions with the same role on both sides, and the parts of its difference.
struct Cause {
  std::string label;               // "attention", "MLP up + activation"
  std::string phase;               // "backward"; "forward + backward"; "" for both
  std::vector<std::string> roles;  // scopes without layer numbers
  std::string op_class;            // the class with most of its time
  GroupSide a, b;
  double ms = 0;                            // b.ms - a.ms
  double ms_per_token = 0;                  // b.ms / tokens of b - a.ms / tokens of a
  double share = 0;                         // of explained_difference(); 0 if there is none
  FactorMs factors{}, factors_per_token{};  // sum to ms and ms_per_token
  Slowdowns slowdowns;                      // of factors, or of factors_per_token when explaining time per token
  Factor main_factor = Factor::unsplit;
  bool significant = false;           // beyond noise and rounding
  std::vector<std::string> settings;  // differing recipe keys, the best explanation first
  bool ambiguous = false;             // several keys may explain the main factor's part
  std::string sentence;
};

// The time of a setting as the only change, and on top of all other changes, in the unit of
// explained_difference(). error: of SettingEffect::ms, 95%.
struct SettingTimes {
  double alone_ms = 0, last_ms = 0, error_ms = 0;
};

// The effect of one setting. All effects sum to the difference. Either measured
// (attribution.method), or the parts of all groups best explained by the setting.
struct SettingEffect {
  // "attention", "naive", "flash". Setting "": not explained by any setting, or the interaction of
  // the changes (AttributionMethod::first_and_last).
  std::string setting, a, b;
  double ms = 0, ms_per_token = 0, share = 0;
  std::optional<SettingTimes> measured;
  std::string sentence;
};

// How the difference was divided among the settings, in the unit of explained_difference().
struct Attribution {
  AttributionMethod method = AttributionMethod::work;
  std::string missing;  // why too little was measured; "": not tried, or complete
  // The effect of all changes beyond the sum of their single effects, and its error (95%).
  double interaction_ms = 0, error_ms = 0;
  std::pair<std::string, std::string> strongest;  // the two settings with the strongest interaction
  double strongest_ms = 0;
};

struct MemoryRow {
  std::string label;  // category
  int64_t a = 0, b = 0;
};

// Persistent blocks, and blocks alive at the peak, matched by role and category. They sum to the
// planned bytes.
struct MemoryCause {
  std::string label, category;
  int64_t a = 0, b = 0;
  int blocks_a = 0, blocks_b = 0;
  std::string type_a, type_b;  // of the largest block if known: "bf16[16,12,1024,1024]"
  bool quadratic = false;      // grows with the square of the sequence length (on the larger side)
  std::string sentence;
};

struct PeakHolder {  // the instruction at the peak of transient memory; empty op: unknown
  std::string program, op, phase, scope;
  int64_t live_bytes = 0;
};

struct LossRow {
  int64_t step = 0;
  double a = 0, b = 0;
};

struct TrainingComparison {                                 // if both sides have a log
  std::vector<LossRow> loss, val_loss;                      // at steps of both
  double tokens_per_second_a = 0, tokens_per_second_b = 0;  // medians
};

// The time lost by more ranks (compare/scaling.h).
struct ScalingRow {
  std::string label;  // "exposed communication"
  double ms = 0;      // per step of the side with more ranks; negative: gained
  std::string detail;
};
struct Scaling {
  std::string few, more;  // titles of the sides
  int64_t few_ranks = 0, more_ranks = 0;
  bool same_work = false;  // a rank has equally many tokens on both sides
  double step_ms = 0, ideal_ms = 0;
  double noise_floor = 0;
  bool beyond_noise = false;     // whether step and ideal really differ
  std::vector<ScalingRow> rows;  // sum to lost_ms()

  double lost_ms() const { return step_ms - ideal_ms; }
  double efficiency() const { return ideal_ms / step_ms; }
};

struct RunComparison {
  ComparedRun a, b;
  std::vector<Difference> differences;
  NoiseCheck noise;  // per step, or per token (per_token)
  // If no floor was measured, these keep the verdict of `noise` at cannot_tell:
  bool scattered = false;       // equal groups differ more than the steps do
  bool too_few_rounds = false;  // interleaved, but too few rounds: cannot_tell
  std::string apart;            // how the machine differed between separate measurements; cannot_tell
  bool same_runs = false;       // all recorded settings with an effect on time are equal: any difference is noise
  bool per_token = false;       // explains time per token, not per step
  std::string join;             // how rows were matched: "scopes", "classes", "layers"; "" without profiles
  std::vector<WaterfallBar> waterfall;  // in the order of Factor, without zeros; empty if a step time is missing
  double residual_share = 0;            // the larger |residual| / step of both sides
  // How much equal groups differ between the runs: the noise of a group. Relative, 95%; 0: too few
  // such groups.
  double row_noise = 0;
  double explained_noise = 0;           // of a sum of groups, in the unit of explained_difference()
  std::vector<Cause> causes;            // largest first
  std::vector<SettingEffect> settings;  // largest first
  Attribution attribution;              // of settings
  std::vector<MemoryRow> memory;        // by category; sums to planned_bytes
  std::vector<MemoryCause> memory_causes;
  PeakHolder peak_a, peak_b;
  TrainingComparison training;
  std::optional<Scaling> scaling;      // of profiles with different numbers of ranks
  std::vector<std::string> sentences;  // the first one is the summary
  std::vector<std::string> notes;      // missing or uncertain points, with a command to help

  double step_difference() const { return b.step_ms - a.step_ms; }
  // The shares of causes and settings are fractions of this: milliseconds per step, or per token.
  double explained_difference() const;
  int64_t planned_difference() const { return b.planned_bytes - a.planned_bytes; }
};

enum class GroupBy { scope, op_class, layer };

struct CompareOptions {
  GroupBy by = GroupBy::scope;
  double noise_floor = -1;  // of an A/A measurement; negative: not measured
  bool per_token = false;   // always when the tokens per step differ
  bool paired = false;      // both took sample i in the same round
  std::string title_a = "A", title_b = "B";
};

// Throws if the two cannot be compared (different phases, nothing measured). The error names the
// missing part.
RunComparison compare_runs(const RunRecord& a, const RunRecord& b, const CompareOptions& options = {});

// Whether both were measured in the same interleaved rounds (crest bench --ab, crest compare --a
// --b): then drift affects samples i of both. Two profiles were, if their command and their noise
// floor are equal to the last bit.
bool same_rounds(const RunRecord& a, const RunRecord& b);
// CPUs used by other processes during a run; NaN: unknown.
double other_load(const RunRecord& run);
// A reason to suspect the machine if the runs did not share rounds: other processes on a CPU,
// another clock of a GPU. "": none known, or the devices differ.
std::string apart_doubt(const RunRecord& a, const RunRecord& b);
// The recipe's difference from itself in the rounds; negative: not measured in rounds.
double rounds_floor(const RunRecord& run);

Json to_json(const RunComparison& comparison);

}  // namespace crest
