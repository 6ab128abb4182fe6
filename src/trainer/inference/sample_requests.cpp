// Prompts in lines of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "inference/sample_model.h"
#include "inference/score_model.h"

namespace crest {

namespace {

const char* const form =
    "Each line is an object: {\"prompt\": \"Once\"}, optionally with max_tokens, temperature, top_k, top_p, seed and "
    "stop.";

class RequestLine {
 public:
  RequestLine(std::string_view line, std::string place) : place_(std::move(place)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) fail("the line is empty", place_, form);
    json_ = parse_line(line, place_, form);
    if (!json_.is_object() || !json_.contains("prompt")) fail("there is no key 'prompt'", place_, form);
  }

  SampleRequest request(const SampleRequest& standard) {
    SampleRequest r = standard;
    r.prompt = text(take("prompt"), "prompt");
    whole("max_tokens", r.max_tokens, 1);
    whole("top_k", r.sampler.top_k, 0);
    whole("seed", r.sampler.seed, 0);
    number("temperature", r.sampler.temperature);
    number("top_p", r.sampler.top_p);
    if (json_.contains("stop")) {
      const nlohmann::json stop = take("stop");
      r.stops.clear();
      if (!stop.is_array())
        r.stops = {text(stop, "stop")};
      else
        for (auto& one : stop) r.stops.push_back(text(one, "stop"));
    }
    try {
      validate(r.sampler);
    } catch (const Error& e) {
      fail(fmt::format("{}: {}", e.where(), e.problem()), place_, e.advice());
    }
    return r;
  }
  // Keys that request() did not take.
  const nlohmann::json& rest() const { return json_; }

 private:
  [[noreturn]] void refuse(const char* key, const char* expected) const {
    fail(fmt::format("the value of '{}' is not {}", key, expected), place_, form);
  }
  nlohmann::json take(const char* key) {
    nlohmann::json value = json_[key];
    json_.erase(key);
    return value;
  }
  std::string text(const nlohmann::json& value, const char* key) const {
    if (!value.is_string()) refuse(key, "a text");
    return value.get<std::string>();
  }
  template <class T>
  void whole(const char* key, T& to, int64_t least) {
    if (!json_.contains(key)) return;
    const nlohmann::json value = take(key);
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() ? value.get<uint64_t>() > uint64_t(INT64_MAX) : value.get<int64_t>() < least))
      refuse(key, least > 0 ? "a whole number above 0" : "a whole number of at least 0");
    to = T(value.get<int64_t>());
    if (int64_t(to) < least) refuse(key, "a whole number above 0");
  }
  void number(const char* key, double& to) {
    if (!json_.contains(key)) return;
    const nlohmann::json value = take(key);
    if (!value.is_number()) refuse(key, "a number");
    to = value.get<double>();
  }

  std::string place_;
  nlohmann::json json_;
};

}  // namespace

std::vector<SampleRequest> parse_sample_requests(std::string_view lines, const std::string& where,
                                                 const SampleRequest& standard, std::vector<std::string>& ignored) {
  std::vector<SampleRequest> requests;
  std::set<std::string> other;
  for (size_t start = 0; start < lines.size();) {
    const size_t end = std::min(lines.find('\n', start), lines.size());
    RequestLine line(lines.substr(start, end - start), place_of_line(where, requests.size()));
    requests.push_back(line.request(standard));
    for (auto& item : line.rest().items()) other.insert(item.key());
    start = end + 1;
  }
  if (requests.empty()) fail("there are no prompts", where, form);
  ignored.assign(other.begin(), other.end());
  return requests;
}

}  // namespace crest
