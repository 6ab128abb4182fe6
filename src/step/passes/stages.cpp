#include "passes/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "program/op.h"

namespace crest {

namespace {

[[noreturn]] void fail_stages(const std::string& what, const std::string& advice) {
  fail_usage(what, "--stages", advice);
}

// Parses "3,3,2".
std::vector<int64_t> parse_stages(const std::string& text) {
  std::vector<int64_t> layers;
  for (const std::string& part : split(text, ',')) {
    int64_t n = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || n < 1)
      fail_stages(fmt::format("'{}' is not a number of layers", printable(part)),
                  "Give the layers of each stage, such as --stages 3,3,2.");
    layers.push_back(n);
  }
  return layers;
}

// Layers of each stage with no stage above `limit`, and as many as possible in early stages. Empty:
// impossible.
std::vector<int64_t> layers_within(const StageCosts& c, int stages, double limit) {
  std::vector<int64_t> cut;
  size_t layer = 0, all = c.layers.size();
  for (int s = 0; s < stages; ++s) {
    double sum = (s == 0 ? c.before : 0) + (s == stages - 1 ? c.behind : 0);
    int64_t n = 0;
    while (layer < all && all - layer > size_t(stages - 1 - s) && (sum + c.layers[layer] <= limit || n == 0)) {
      sum += c.layers[layer++];
      ++n;
    }
    if (sum > limit) return {};
    cut.push_back(n);
  }
  return layer == all ? cut : std::vector<int64_t>();
}

}  // namespace

StageCosts flops_of_layers(const Recipe& r) {
  const Program p = build_model(r.model, {ProgramKind::validation, r.batch, r.seq_length()});
  StageCosts costs;
  costs.layers.assign(size_t(r.model.layers), 0);
  for (const Instr& instr : p.code) {
    const int layer = instr.origin.layer();
    const double flops = instr.op->cost(p, instr).flops;
    const bool begun = std::any_of(costs.layers.begin(), costs.layers.end(), [](double x) { return x > 0; });
    (layer >= 0 ? costs.layers[size_t(layer)] : begun ? costs.behind : costs.before) += flops;
  }
  return costs;
}

std::vector<int64_t> cut_layers(const StageCosts& costs, int stages) {
  // The limit is the cost of some run of layers, including embedding and head at the ends.
  std::vector<double> limits;
  const size_t n = costs.layers.size();
  for (size_t first = 0; first < n; ++first) {
    double sum = first == 0 ? costs.before : 0;
    for (size_t last = first; last < n; ++last) {
      sum += costs.layers[last];
      limits.push_back(last + 1 == n ? sum + costs.behind : sum);
    }
  }
  std::sort(limits.begin(), limits.end());
  auto fits = [&](double limit) { return !layers_within(costs, stages, limit).empty(); };
  auto found = std::partition_point(limits.begin(), limits.end(), [&](double limit) { return !fits(limit); });
  if (found == limits.end()) fail_internal("layers that no stages can share");
  return layers_within(costs, stages, *found);
}

static std::string schedule_of(const Recipe& r) {
  return PassContext{r, ProgramKind::train}.setting("schedule-pipeline");
}

static constexpr std::string_view interleaved = "interleaved:";

static int chunks_in(std::string_view text) {
  int chunks = 0;
  if (!text.starts_with(interleaved)) return 1;
  const char *begin = text.data() + interleaved.size(), *end = text.data() + text.size();
  auto [read, error] = std::from_chars(begin, end, chunks);
  return error == std::errc() && read == end ? chunks : 0;
}

std::string wrong_schedule(std::string_view text) {
  if (text == "1f1b" || text == "zero-bubble") return "";
  if (!text.starts_with(interleaved)) return fmt::format("'{}' is not a schedule", printable(std::string(text)));
  const int chunks = chunks_in(text);
  return chunks >= 2 && chunks <= 64 ? "" : fmt::format("'{}' needs 2 to 64 chunks", printable(std::string(text)));
}

PipelineKind pipeline_kind(const Recipe& r) {
  const std::string text = schedule_of(r);
  return text == "zero-bubble" ? PipelineKind::zero_bubble
         : chunks_in(text) > 1 ? PipelineKind::interleaved
                               : PipelineKind::one_f_one_b;
}

int chunks_of_rank(const Recipe& r) { return chunks_in(schedule_of(r)); }

int stage_count(const Recipe& r) { return r.layout().size(Axis::pipeline) * chunks_of_rank(r); }

std::vector<int64_t> stage_layers(const Recipe& r) {
  const int stages = stage_count(r);
  if (r.model.layers < stages)
    fail_usage(fmt::format("{} stages need as many layers, and the model has {}", stages, r.model.layers), "--mesh",
               fmt::format("Use pipeline={} or fewer.", r.model.layers));
  const std::string text = PassContext{r, ProgramKind::train}.setting("stages");
  if (text.empty()) return cut_layers(flops_of_layers(r), stages);
  std::vector<int64_t> layers = parse_stages(text);
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t(0));
  if (int(layers.size()) != stages || sum != r.model.layers)
    fail_stages(fmt::format("{} has {} with {} layers, but the run has {} and the model {} layers", text,
                            format_number_of(int64_t(layers.size()), "stage"), sum, format_number_of(stages, "stage"),
                            r.model.layers),
                "Give the layers of each stage, or leave it out for a cut by time.");
  return layers;
}

std::string stages_text(const std::vector<int64_t>& layers) {
  std::vector<std::string> texts;
  for (int64_t n : layers) texts.push_back(std::to_string(n));
  return join(texts, ",");
}

int stage_of_layer(int layer, const std::vector<int64_t>& layers) {
  int stage = 0;
  for (int64_t left = layer; left >= layers[size_t(stage)]; ++stage) left -= layers[size_t(stage)];
  return stage;
}

int stage_of_parameter(std::string_view name, const std::vector<int64_t>& layers) {
  if (const int layer = Origin(name).layer(); layer >= 0) return stage_of_layer(layer, layers);
  for (const char* of_embedding : {"wte.", "wpe.", "ln_emb."})
    if (name.starts_with(of_embedding)) return 0;
  return int(layers.size()) - 1;
}

}  // namespace crest
