#include "bench/comm_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "backend/cuda/nccl.h"
#include "comm/gloo.h"
#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr int most_ranks = 128;
constexpr size_t most_sizes = 100;
constexpr int64_t process_bytes = 64 << 20;  // per rank, besides buffers: library, sockets, segments

const char* const sizes_help = "Write for example 1MB..64MB (doubling), 1KB..1GB:x4, or 1MB,10MB.";

int64_t size_of_text(const std::string& text) {
  int64_t bytes = parse_bytes(text, "--sizes");
  if (bytes < 1) fail_usage(fmt::format("'{}' is not a message size", printable(text)), "--sizes", sizes_help);
  return bytes;
}

// One item of --sizes.
void add_sizes(const std::string& item, std::set<int64_t>& sizes) {
  size_t dots = item.find("..");
  if (dots == std::string::npos) {
    sizes.insert(size_of_text(item));
    return;
  }
  std::string last = item.substr(dots + 2), step = "x2";
  if (size_t colon = last.find(':'); colon != std::string::npos) step = last.substr(colon + 1), last.resize(colon);
  if (step != "x2" && step != "x4")
    fail_usage(fmt::format("'{}' is not a step between sizes", printable(step)), "--sizes", "Steps: :x2, :x4.");
  int64_t low = size_of_text(item.substr(0, dots)), high = size_of_text(last);
  if (low > high) fail_usage(fmt::format("'{}' is descending", printable(item)), "--sizes", sizes_help);
  int64_t factor = step == "x4" ? 4 : 2;
  for (int64_t s = low; s < high; s *= factor) {
    sizes.insert(s);
    if (s > high / factor) break;
  }
  sizes.insert(high);
}

constexpr std::pair<const char*, DType> dtypes[] = {
    {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}, {"fp64", DType::f64}};

std::string backend_of(const CommOptions& o) {
  if (o.backend == "auto") return o.device.find().kind == "cuda" ? "nccl" : "gloo";
  const std::vector<std::string> names = {"gloo", "nccl", "auto"};
  if (std::find(names.begin(), names.end(), o.backend) == names.end())
    fail_usage(fmt::format("unknown backend '{}'", printable(o.backend)), "--backend",
               did_you_mean(o.backend, names) + " Backends: gloo (CPU), nccl (GPU), auto.");
  return o.backend;
}

std::vector<Collective> collectives_of(const CommOptions& o) {
  if (o.collectives.empty())
    fail_usage(
        "no collective given", "crest comm",
        "Give one or more of all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send-receive, or all.");
  std::vector<Collective> list;
  for (auto& text : o.collectives) {
    if (text == "all") return all_collectives;
    Collective c = parse_collective(text);
    if (std::find(list.begin(), list.end(), c) == list.end()) list.push_back(c);
  }
  return list;
}

StoppingRule rule_of(const CommOptions& o) {
  if (o.samples < 0 || o.samples > 1'000'000)
    fail_usage(fmt::format("'{}' is out of range", o.samples), "--samples", "It must be from 1 to 1000000.");
  if (o.warmup < 0 || o.warmup > 1'000'000)
    fail_usage(fmt::format("'{}' is out of range", o.warmup), "--warmup", "It must be from 0 to 1000000.");
  if (!(o.max_seconds >= 0)) fail_usage("a time limit must be positive", "--max-seconds");
  if (!(o.timeout >= 1) || o.timeout > 86400)
    fail_usage(fmt::format("'{}' is out of range", o.timeout), "--timeout", "It must be from 1 to 86400 seconds.");
  StoppingRule rule = {.warmup = o.warmup,
                       .min_samples = 6,
                       .max_samples = 100,
                       .max_seconds = o.max_seconds,
                       .target_relative_ci = 0.02,
                       .samples_at_limit = 1};
  if (o.samples > 0) rule.min_samples = rule.max_samples = o.samples, rule.samples_at_limit = 0;
  return rule;
}

// The number of ranks, checked against the requested groups.
void settle_ranks(const CommOptions& o, const std::optional<RankEnvironment>& environment, CommPlan& plan) {
  if (o.nproc < 0 || o.nproc > most_ranks)
    fail_usage(fmt::format("'{}' is out of range", o.nproc), "--nproc",
               fmt::format("It must be from 1 to {}.", most_ranks));
  if (!o.ranks.empty()) plan.ranks = parse_ranks(o.ranks);
  int largest = plan.ranks.empty() ? 0 : *std::max_element(plan.ranks.begin(), plan.ranks.end());
  if (environment) {
    plan.world = environment->size;
    if (o.nproc && o.nproc != plan.world)
      fail_usage(fmt::format("--nproc {}, but {} started {} ranks", o.nproc, environment->launcher, plan.world),
                 "--nproc", "Omit --nproc when another program starts the ranks.");
  } else {
    plan.world = o.nproc ? o.nproc : largest ? largest : 2;
  }
  if (plan.ranks.empty()) plan.ranks = {plan.world};
  if (largest > plan.world)
    fail_usage(fmt::format("{} ranks requested, {} available", largest, plan.world), "--world-sizes",
               environment ? "Start more ranks." : "Raise --nproc, or omit it.");
}

}  // namespace

DType parse_comm_dtype(const std::string& text) {
  std::vector<std::string> names;
  for (auto& [n, type] : dtypes) {
    if (n == text) return type;
    names.emplace_back(n);
  }
  fail_usage(fmt::format("'{}' is not a value of --dtype", printable(text)), "--dtype",
             did_you_mean(text, names) + " Values: " + join(names, ", ") + ".");
}

const char* flag_name(DType dtype) {
  for (auto& [n, type] : dtypes)
    if (type == dtype) return n;
  return "?";
}

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::set<int64_t> sizes;
  for (auto& item : split(text, ',')) {
    if (item.empty()) fail_usage(fmt::format("'{}' has an empty value", printable(text)), "--sizes", sizes_help);
    add_sizes(item, sizes);
  }
  if (sizes.size() > most_sizes)
    fail_usage(fmt::format("too many sizes: {}", sizes.size()), "--sizes", fmt::format("At most {}.", most_sizes));
  return {sizes.begin(), sizes.end()};
}

std::vector<int> parse_ranks(const std::string& text, const char* flag, int least) {
  std::set<int> ranks;
  for (auto& item : split(text, ',')) {
    int n = 0;
    auto [end, code] = std::from_chars(item.data(), item.data() + item.size(), n);
    if (code != std::errc() || end != item.data() + item.size() || n < least || n > most_ranks)
      fail_usage(fmt::format("'{}' is not a number of ranks from {} to {}", printable(item), least, most_ranks), flag,
                 "Write for example 2,4.");
    ranks.insert(n);
  }
  return {ranks.begin(), ranks.end()};
}

CommPlan plan_comm(const CommOptions& o, const std::optional<RankEnvironment>& environment) {
  CommPlan plan;
  plan.collectives = collectives_of(o);
  plan.sizes = parse_sizes(o.sizes);
  plan.dtype = parse_comm_dtype(o.dtype);
  plan.rule = rule_of(o);
  if (!o.link_rate.empty()) plan.link_rate = double(parse_bytes(o.link_rate, "--link-rate"));
  if (o.port < 0 || o.port > 65535)
    fail_usage(fmt::format("'{}' is out of range", o.port), "--port", "It must be from 1 to 65535; 0: any free one.");
  settle_ranks(o, environment, plan);
  plan.backend = backend_of(o);
  std::string problem = plan.backend == "gloo" ? gloo_problem() : nccl_problem();
  if (!problem.empty()) throw Error(plan.backend == "gloo" ? Exit::failed : Exit::no_device, problem, "--backend");
  return plan;
}

void check_sizes_fit(const CommPlan& plan, int local_ranks, int64_t limit) {
  int ranks = std::min(plan.world, *std::max_element(plan.ranks.begin(), plan.ranks.end()));
  int64_t share = (limit - local_ranks * process_bytes) / std::max(1, std::min(ranks, local_ranks)),
          largest = INT64_MAX;
  for (Collective c : plan.collectives) {
    // Buffers take at most whole + whole / ranks. One unit of elements fewer always fits.
    int64_t whole = int64_t(size_of(plan.dtype)) * ranks;
    double per_byte = double(buffer_bytes(c, ranks, plan.dtype, ranks * 1000)) / (1000.0 * double(whole));
    largest = std::min(largest, std::max<int64_t>(0, int64_t(double(share) / per_byte)));
  }
  if (plan.sizes.back() <= largest) return;
  throw Error(Exit::does_not_fit,
              fmt::format("{} in {} ranks does not fit in {}", format_bytes(double(plan.sizes.back())), ranks,
                          format_bytes(double(limit))),
              "--sizes", fmt::format("Up to {} fits.", format_bytes(double(largest))));
}

}  // namespace crest
