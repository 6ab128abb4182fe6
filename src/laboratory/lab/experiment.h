// An experiment: one TOML file with a grid of measurements and claims to judge.
// docs/reference/lab.md describes the file.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/expression.h"

namespace crest::lab {

// The kinds of experiments, one row each. measurements.cpp has the measurement classes, columns.cpp
// the columns.
enum class Kind { arithmetic, plan, bench, profile, gemm, train, comm };

struct KindInfo {
  Kind kind;
  const char *name, *measurement;  // the name in files; a measurement in words
  bool has_measurements = true;
  bool timed = false;              // measurements have the column ms, and therefore a noise floor
  bool instruction_times = false;  // rows of instructions have times, too
  bool reads_text = false;         // measurements accept the setting `data`
  bool rounds = false;             // short enough to run twice: all once, then all in reverse order
};
const std::vector<KindInfo>& kinds();
const KindInfo& info(Kind);
inline const char* name(Kind kind) { return info(kind).name; }

// An expression and its place in the file.
struct Formula {
  std::string name;  // of the column or quantity it defines
  std::string text;
  Expression expression;
  std::string file;
  size_t line = 0, column = 0;  // of the first character
};
// "experiments/x.toml (line 3, column 14)" for a place in the formula.
std::string place(const Formula& formula, size_t at);

struct Axis {
  std::string key;
  std::vector<std::string> values;
  std::string place;  // "mine.toml (line 7, column 9)"
};
using Axes = std::vector<Axis>;

// Named recipe flags (with '_') and measurement settings. Lists form a grid.
struct Variant {
  std::string name;
  Axes axes;
  std::string only;  // "tiny", "cpu" or "tiny.cpu": the variant exists only there; "": everywhere
};

// The conditions of a claim. If they are not met, the claim is not comparable. Without the evidence
// it is inconclusive.
struct Conditions {
  std::string name;           // in the file; "": they belong to a single claim
  std::string about;          // in words: "GPT-2 124M on an H100"
  std::string unavailable;    // why no measurement can meet them; "": some can
  Formula needs;              // on the device and the whole table; text "" = nothing
  std::vector<Filter> where;  // the claim reads only matching measurements
  Formula evidence;           // what the measurements must show for a verdict; text "" = nothing
  std::string lacking;        // in words, if they do not: "the library chose different tiles"
};

struct Claim {
  std::string text, subject, source;
  std::string quote;  // quoted from the source
  Formula check;
  Conditions conditions;
};

// A document's figure, to print next to Crest's.
struct Then {
  std::string what, unit, source;
  double document = 0;
  Formula here;
  Conditions conditions;
};

struct Experiment {
  std::string file, text;  // as read
  std::string name, title, question, source, shrinks, machine;
  std::string unavailable;  // why it cannot run yet; "": it can
  Kind kind = Kind::arithmetic;
  std::vector<std::string> show;  // columns of the printed table
  Axes recipe;
  std::vector<std::pair<std::string, Axes>> scales;  // "tiny", "small.cuda", ...
  std::vector<Variant> variants;
  std::vector<Formula> columns, quantities;
  std::vector<Conditions> conditions;
  std::vector<Claim> claims;
  std::vector<Then> then;

  bool uses_column(const std::string& column) const;
};

// Throws a usage error with file, line and column.
Experiment parse_experiment(std::string_view text, const std::string& file);

// One measurement of the grid: flags and settings in file order. keys: the same and the variant.
struct MeasurementSpec {
  std::vector<std::pair<std::string, std::string>> settings;
  std::map<std::string, std::string> keys;
  std::map<std::string, std::string> places;  // of the settings, in the file
  std::string label;                          // what distinguishes it from the other measurements
};
inline const std::vector<std::string> scale_names = {"tiny", "small", "full"};
void check_scale_name(const std::string& scale);  // throws a usage error
// device: "cpu" or "cuda". Later tables override earlier ones: [recipe], [scale.S],
// [scale.S.DEVICE], [[variant]].
std::vector<MeasurementSpec> measurements_of(const Experiment& experiment, const std::string& scale,
                                             const std::string& device);

// The built-in experiments by name, and the experiment given to `crest lab` by name or file.
std::vector<Experiment> all_experiments();
Experiment find_experiment(const std::string& name_or_file);

}  // namespace crest::lab
