// One setting: a row with its flag, its keys in TOML and JSON, its check, help and completions, its
// line on the page of settings, its treatment in comparisons, and its suggestions. A row is
// declared next to its reader (a pass, the trainer, the loader); nothing else names it.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace crest {

using SettingValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

enum class SettingType { truth, whole, number, text, list };  // in the order of SettingValue

// The reaction of `train --resume` to a value different from the run's.
enum class OnResume { accepts, notes, refuses };

// How a comparison of two runs decides whether this setting causes a part of their difference.
struct Effect {
  enum Factors { rate, work, communication, all };  // of a step's time (compare/compare.h)
  enum Where { anywhere, attention, types, instructions, amount, types_or_amount, changed, kernels, calls };
  Factors factors;
  Where where = anywhere;
  std::vector<const char*> roles = {};  // of parameters and modules, e.g. "wte", "lm_head"; empty: any
  const char* phase = nullptr;          // "update"; null: any
  bool last = false;                    // only for parts without another explanation
};

struct Setting {
  const char* name;   // "grad-accumulation": flag --grad-accumulation, key grad_accumulation
  const char* group;  // heading in help
  const char* help;

  const char* unit = "";           // "tokens", "steps", "ms"
  const char* default_value = "";  // the default, if no object holds it: of a setting, or how it is computed
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // exclude min, max
  std::vector<const char*> choices = {};
  bool also_number = false;  // besides the choices, a whole number is accepted
  const char* example = "";  // for settings other than numbers and choices
  bool pairs = false;        // a list of NAME=VALUE: an object in JSON
  bool commas = false;       // a value may have them, so a list of values cannot be given
  bool common = false;       // in the short help
  bool identity = true;      // measurements with different values are not comparable (RunRecord::key)
  bool newer = false;        // than records: at its default it is not in their key, so older ones match
  bool stored = true;        // in the record of a run
  bool local = false;        // the ranks of a run may differ in it; all others must be the same for all
  OnResume resume = OnResume::notes;
  std::vector<Effect> effects = {};
  std::vector<const char*> smaller = {};  // values with possibly less memory, to suggest in a plan

  SettingType type = SettingType::text;
  SettingValue (*get)(const Setting&, const void* object) = nullptr;
  void (*set)(const Setting&, void* object, const SettingValue&) = nullptr;

  std::string flag() const;  // "--grad-accumulation"
  std::string key() const;   // "grad_accumulation"
};

namespace detail {
template <class T>
struct MemberOf;
template <class S, class T>
struct MemberOf<T S::*> {
  using Struct = S;
  using Type = T;
};
}  // namespace detail

// A setting with a member of a struct as value: setting<&Recipe::batch>({.name = "batch", ...}).
template <auto member>
Setting setting(Setting row) {
  using S = typename detail::MemberOf<decltype(member)>::Struct;
  using T = typename detail::MemberOf<decltype(member)>::Type;
  if constexpr (std::is_same_v<T, bool>) {
    row.type = SettingType::truth;
  } else if constexpr (std::is_integral_v<T>) {
    row.type = SettingType::whole;
  } else if constexpr (std::is_floating_point_v<T>) {
    row.type = SettingType::number;
  } else if constexpr (std::is_same_v<T, std::string>) {
    row.type = SettingType::text;
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>);
    row.type = SettingType::list;
  }
  using Held = std::conditional_t<std::is_same_v<T, bool>, bool, std::conditional_t<std::is_integral_v<T>, int64_t, T>>;
  row.get = [](const Setting&, const void* object) {
    return SettingValue(Held(static_cast<const S*>(object)->*member));
  };
  row.set = [](const Setting&, void* object, const SettingValue& value) {
    static_cast<S*>(object)->*member = T(std::get<Held>(value));
  };
  return row;
}

// Parses the text of a flag or TOML value: exactly one value, within the row's range or among its
// choices. Throws a usage error with the flag (or `where`), the text and the allowed values.
SettingValue parse_setting(const Setting& row, std::string_view text, const std::string& where = "");
// The text for this value; numbers are in their shortest form.
std::string text_of(const SettingValue& value);
// The allowed values: "fp32, bf16", "a whole number, at least 1".
std::string allowed(const Setting& row);
// For help and completions.
std::vector<std::string> choices_of(const Setting& row);

}  // namespace crest
