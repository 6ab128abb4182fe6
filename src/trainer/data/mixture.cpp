#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

constexpr size_t most_sources = 1000;

// The number after the last colon, if there is one, and the text before it.
std::optional<DataSource> split_weight(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return {};
  double weight = 0;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  auto [last, error] = std::from_chars(begin, end, weight);
  if (error != std::errc() || last != end || !std::isfinite(weight)) return {};
  return DataSource{text.substr(0, colon), weight, true};
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

DataSource parse_source(const std::string& text) {
  const auto split = split_weight(text);
  if (!split) return {text};
  const bool whole = exists(text);
  if (whole && exists(split->folder))
    fail_usage(fmt::format("'{}' is a folder, and '{}' is one, too", printable(text), printable(split->folder)),
               "--data",
               fmt::format("Write {}/ for the first, or {}/:{} for the second with this weight.", printable(text),
                           printable(split->folder), split->weight));
  if (whole) return {text};
  if (!(split->weight > 0))
    fail_usage(fmt::format("the weight of '{}' is {}", printable(split->folder), split->weight), "--data",
               "It must be above 0. To train without this source, leave it out.");
  return *split;
}

bool is_same(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || fs::equivalent(a, b, ignored);
}

// Whole numbers in the ratio of the weights, without a common divisor, and at most
// `longest_period` together; empty: there are none.
std::vector<uint64_t> exact_parts(const std::vector<double>& weights) {
  for (double scale = 1; scale <= double(MixtureOrder::longest_period); scale *= 10) {
    std::vector<uint64_t> parts;
    uint64_t divisor = 0, sum = 0;
    for (double weight : weights) {
      const double scaled = weight * scale, whole = std::round(scaled);
      if (whole < 1 || whole > 1e12 || std::abs(scaled - whole) > 1e-12 * scaled) break;
      parts.push_back(uint64_t(whole));
      divisor = std::gcd(divisor, parts.back()), sum += parts.back();
    }
    if (parts.size() < weights.size() || sum / divisor > MixtureOrder::longest_period) continue;
    for (uint64_t& part : parts) part /= divisor;
    return parts;
  }
  return {};
}

// Parts of the longest period by largest remainder.
std::vector<uint64_t> rounded_parts(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;  // of ratios: a sum of weights may overflow
  for (double weight : weights) sum += weight / largest;
  std::vector<uint64_t> parts;
  std::vector<double> rest;
  for (double weight : weights) {
    const double exact = weight / largest / sum * double(MixtureOrder::longest_period);
    parts.push_back(uint64_t(exact)), rest.push_back(exact - std::floor(exact));
  }
  uint64_t given = std::accumulate(parts.begin(), parts.end(), uint64_t(0));
  for (; given < MixtureOrder::longest_period; ++given) {
    auto most = std::max_element(rest.begin(), rest.end());
    ++parts[size_t(most - rest.begin())], *most = -1;
  }
  uint64_t divisor = 0;
  for (uint64_t part : parts) divisor = std::gcd(divisor, part);
  for (uint64_t& part : parts) part /= divisor;
  return parts;
}

}  // namespace

std::vector<DataSource> parse_data_sources(const std::vector<std::string>& texts) {
  if (texts.size() > most_sources)
    fail_usage(fmt::format("{} sources were given", texts.size()), "--data", fmt::format("At most {}.", most_sources));
  std::vector<DataSource> sources;
  for (auto& text : texts) {
    DataSource source = parse_source(text);
    if (texts.size() > 1 && source.folder == "-")
      fail_usage("standard input cannot be part of a mixture", "--data", "Give folders of crest data prepare.");
    if (texts.size() > 1 && !source.weighted)
      fail_usage(fmt::format("'{}' has no weight, but there are {} sources", printable(source.folder), texts.size()),
                 "--data", "Give each a weight: --data data/web:0.7 --data data/books:0.3.");
    for (auto& other : sources)
      if (is_same(source.folder, other.folder))
        fail_usage(fmt::format("'{}' was given twice", printable(source.folder)), "--data",
                   "Give it once, with one weight.");
    sources.push_back(std::move(source));
  }
  return sources;
}

std::string data_text(const DataSource& source) {
  const bool looks_weighted = split_weight(source.folder).has_value();
  const std::string folder = source.folder + (looks_weighted ? "/" : "");
  return source.weighted ? fmt::format("{}:{}", folder, source.weight) : folder;
}

std::vector<std::string> labels_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> paths, names;
  for (auto& source : sources) {
    fs::path path = fs::absolute(source.folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    paths.push_back(path.string()), names.push_back(path.filename().string());
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (std::count(names.begin(), names.end(), names[i]) == 1) paths[i] = names[i];
  return paths;
}

MixtureOrder::MixtureOrder(const std::vector<double>& weights) : parts_(exact_parts(weights)) {
  if (parts_.empty()) parts_ = rounded_parts(weights);
  const auto sources = int64_t(parts_.size());
  for (size_t s = 0; s < parts_.size(); ++s)
    if (parts_[s] == 0)
      fail_usage(fmt::format("weight {} is below a millionth of all weights", weights[s]), "--data",
                 "Give it a larger weight, or leave the source out.");
  const auto period = int64_t(std::accumulate(parts_.begin(), parts_.end(), uint64_t(0)));
  source_.assign(size_t(period), 0), before_.resize(size_t(period));
  // lag: period * (share * n - samples so far), for the n-th sample.
  std::vector<int64_t> lag(parts_.size());
  std::vector<uint32_t> count(parts_.size());
  const int64_t lead = 2 * sources - 2;
  for (auto n = size_t(0); n < size_t(period); ++n) {
    size_t chosen = 0;
    int64_t least = 0, of = 0;  // a fraction: the time until the source is due
    for (size_t s = 0; s < parts_.size(); ++s) {
      const auto part = int64_t(parts_[s]);
      lag[s] += part;
      if (lead * lag[s] < period) continue;
      const int64_t due = (lead - 1) * period - lead * lag[s];
      if (of == 0 || due * of < least * part) chosen = s, least = due, of = part;
    }
    lag[chosen] -= period;
    source_[n] = uint16_t(chosen), before_[n] = count[chosen]++;
  }
}

MixtureOrder::Place MixtureOrder::operator()(uint64_t sample) const {
  const uint64_t at = sample % period();
  const size_t source = source_[at];
  return {source, sample / period() * parts_[source] + before_[at]};
}

}  // namespace crest
