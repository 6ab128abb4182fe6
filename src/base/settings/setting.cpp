#include "settings/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace crest {

std::string Setting::flag() const { return std::string("--") + name; }

std::string Setting::key() const {
  std::string key = name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<std::string> choices_of(const Setting& row) { return {row.choices.begin(), row.choices.end()}; }

namespace {

// "1e+06" is 1000000.
std::string plain(double x) {
  return x == std::floor(x) && std::abs(x) < 1e15 ? fmt::format("{:.0f}", x) : fmt::format("{}", x);
}

// " from 1 to 64", " above 0", ", at least 0".
std::string range_of(const Setting& row) {
  bool bounded = std::isfinite(row.min) && std::isfinite(row.max);
  if (bounded && !row.above && !row.below) return fmt::format(" from {} to {}", plain(row.min), plain(row.max));
  std::string low =
      std::isfinite(row.min) ? fmt::format("{} {}", row.above ? "above" : "at least", plain(row.min)) : "";
  std::string high =
      std::isfinite(row.max) ? fmt::format("{} {}", row.below ? "below" : "at most", plain(row.max)) : "";
  if (low.empty() && high.empty()) return "";
  return (row.above && !bounded ? " " : ", ") + low + (low.empty() || high.empty() ? "" : " and ") + high;
}

bool in_range(const Setting& row, double x) {
  if (row.above ? !(x > row.min) : !(x >= row.min)) return false;
  return row.below ? x < row.max : x <= row.max;
}

[[noreturn]] void refuse(const Setting& row, const std::string& problem, const std::string& where,
                         const std::string& hint = "") {
  fail_usage(problem, where.empty() ? row.flag() : where, hint + (hint.empty() ? "" : " ") + allowed(row));
}

enum class Parsed { good, not_a_number, too_large, too_small };

template <class T>
Parsed parse_number(std::string_view text, T& value) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return Parsed::not_a_number;
  if (error == std::errc::result_out_of_range) {
    // from_chars does not report on which side of the range a number is.
    if constexpr (std::is_floating_point_v<T>) {
      size_t e = text.find_first_of("eE");
      bool tiny =
          e != std::string_view::npos ? text.substr(e + 1, 1) == "-" : text.find("0.0") != std::string_view::npos;
      return tiny ? Parsed::too_small : Parsed::too_large;
    }
    return Parsed::too_large;
  }
  return error == std::errc() ? Parsed::good : Parsed::not_a_number;
}

template <class T>
T number_of(const Setting& row, std::string_view text, const std::string& where, const char* what) {
  T value{};
  std::string shown = printable(text);
  switch (parse_number(text, value)) {
    case Parsed::good: break;
    case Parsed::too_large: refuse(row, fmt::format("'{}' is too large", shown), where);
    case Parsed::too_small: refuse(row, fmt::format("'{}' is too small", shown), where);
    case Parsed::not_a_number:
      refuse(row, text.empty() ? "the value is empty" : fmt::format("'{}' is not {}", shown, what), where);
  }
  if (!std::isfinite(double(value))) refuse(row, fmt::format("'{}' is not {}", shown, what), where);
  if (!in_range(row, double(value))) refuse(row, fmt::format("'{}' is out of range", shown), where);
  return value;
}

bool truth_of(const Setting& row, std::string_view text, const std::string& where) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  refuse(row, fmt::format("'{}' is neither true nor false", printable(text)), where);
}

}  // namespace

std::string allowed(const Setting& row) {
  switch (row.type) {
    case SettingType::truth: return "Values: true, false.";
    case SettingType::whole:
    case SettingType::number: {
      std::string what = row.type == SettingType::whole ? "a whole number" : "a number", range = range_of(row);
      if (*row.unit) what += std::string(" of ") + row.unit;
      return fmt::format("Give {}{}.", what, range);
    }
    case SettingType::text:
    case SettingType::list: break;
  }
  std::string list = row.choices.empty() ? "" : fmt::format("Values: {}", join(choices_of(row), ", "));
  if (row.also_number) list += fmt::format(" or a whole number{}{}", *row.unit ? " of " : "", row.unit);
  if (list.empty()) return *row.example ? fmt::format("For example {} {}.", row.flag(), row.example) : "";
  return list + ".";
}

SettingValue parse_setting(const Setting& row, std::string_view text, const std::string& where) {
  switch (row.type) {
    case SettingType::truth: return truth_of(row, text, where);
    case SettingType::whole: return number_of<int64_t>(row, text, where, "a whole number");
    case SettingType::number: return number_of<double>(row, text, where, "a number");
    case SettingType::text:
    case SettingType::list: break;
  }
  if (text.empty()) refuse(row, "the value is empty", where);
  std::vector<std::string> choices = choices_of(row);
  // "budget=SIZE" stands for all texts with the beginning "budget=": the row's `set` checks the
  // rest.
  auto is = [&](const std::string& choice) {
    size_t equals = choice.find('=');
    return equals == choice.npos ? text == choice : text.starts_with(choice.substr(0, equals + 1));
  };
  if (choices.empty() || std::any_of(choices.begin(), choices.end(), is))
    return row.type == SettingType::list ? SettingValue(std::vector<std::string>{std::string(text)})
                                         : SettingValue(std::string(text));
  if (row.also_number) {
    int64_t n = 0;
    if (parse_number(text, n) != Parsed::not_a_number)
      return std::to_string(number_of<int64_t>(row, text, where, "a whole number"));
  }
  refuse(row, fmt::format("'{}' is not a value of {}", printable(text), row.flag()), where,
         did_you_mean(std::string(text), choices));
}

std::string text_of(const SettingValue& value) {
  if (auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  if (auto* s = std::get_if<std::string>(&value)) return *s;
  return join(std::get<std::vector<std::string>>(value), ",");
}

}  // namespace crest
