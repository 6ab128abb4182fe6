#include "predict/time_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "profile/class_label.h"
#include "stats/samples.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t none = size_t(-1);
constexpr double unchecked = 0.3;                // half the range, in ln, of a model with too few steps for a check
constexpr double unmeasured = 4;                 // kernels without measurements may be off by this factor
constexpr double least = 0.03;                   // machines vary from minute to minute
constexpr int64_t most_keys = int64_t(1) << 24;  // in a file: more is damage
// A profiled step starts after the end of the one before. In short steps the GPU rests often enough
// to stay below its power limit. In long ones products take longer, and with the square of their
// share of the step. Fitted to products of the H100 and the H200 predicted from the others, and to
// products of other steps: docs/results/predictions.md.
constexpr double at_power_limit = 0.28, half_limited_ms = 10;

// Solves the normal equations of the columns in `use`; false if they are singular.
bool solve(const std::vector<std::vector<double>>& rows, const std::vector<double>& y, const std::vector<size_t>& use,
           std::vector<double>& x) {
  size_t n = use.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (size_t r = 0; r < rows.size(); ++r) {
    double weight = 1 / (y[r] * y[r]);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a[i][j] += weight * rows[r][use[i]] * rows[r][use[j]];
      a[i][n] += weight * rows[r][use[i]] * y[r];
    }
  }
  // Columns differ by orders of magnitude, so the diagonal is scaled to 1.
  std::vector<double> scale(n);
  for (size_t i = 0; i < n; ++i) {
    if (!(a[i][i] > 0)) return false;
    scale[i] = 1 / std::sqrt(a[i][i]);
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) a[i][j] *= scale[i] * scale[j];
    a[i][n] *= scale[i];
  }
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r)
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    if (std::abs(a[pivot][i]) < 1e-9) return false;
    std::swap(a[i], a[pivot]);
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      double factor = a[r][i] / a[i][i];
      for (size_t c = i; c <= n; ++c) a[r][c] -= factor * a[i][c];
    }
  }
  for (size_t i = 0; i < n; ++i) x[use[i]] = a[i][n] / a[i][i] * scale[i];
  return true;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The first of equally good sets is used: one measured size gives a time per FLOP (or byte), not a
// constant time.
std::vector<double> features(const CallTime& c, bool shaped) {
  return {shaped ? c.flops * c.tiles : c.flops, c.bytes, 1};
}

// Time of a GPU's product over its time at the full clock, in a step of this length with this share
// of products.
double clock_factor(double step_ms, double products) {
  return 1 + at_power_limit * products * products * step_ms / (step_ms + half_limited_ms);
}

// The class of an instruction: kernel, types and fused operations, for example "cpu.fused.simd fp32
// a+b".
std::string key_of(const ProfileInstr& r) {
  std::string key = fmt::format("{} {} {}", r.kernel, r.arithmetic, r.type.substr(0, r.type.find('[')));
  for (auto& part : r.parts) key += (&part == &r.parts.front() ? " " : "+") + part;
  return key;
}

// Measured classes that may stand in for an unmeasured one, the most similar first: a kernel with
// less work after the matmul but the same time per FLOP, or one that also reads and writes at its
// end (docs/develop/kernels.md, SwiGLU on Hopper: within 14% of three sizes); or one that writes
// other bytes; then the same kernel with an fp32 result. Attention to shared sequences is done by
// the same kernels. For heads of 128 Crest's own are 13% slower than cuDNN's
// (docs/develop/kernels.md).
std::vector<std::string> stand_ins(const std::string& key) {
  constexpr std::pair<std::string_view, std::string_view> kernels[] = {
      {"cuda.linear_swiglu.sm90 ", "cuda.linear.sm90_or_cublaslt "},
      {"cuda.linear_dx_sum.sm90 ", "cuda.linear_dx.sm90_or_cublaslt "},
      {"cuda.linear_dx_swiglu_grad.sm90 ", "cuda.linear_dx_gelu_grad.sm90 "},
      {"cuda.linear_dx_swiglu_grad.sm90 ", "cuda.linear_dx.sm90_or_cublaslt "},
      {"cuda.fused_update.adamw ", "cuda.adamw "},
      {"cuda.attention_rows.", "cuda.attention."},
      {"cuda.attention_rows_grad.", "cuda.attention_grad."},
      {"cuda.attention.sm90.d128 ", "cuda.attention.cudnn "},
      {"cuda.attention_grad.sm90.d128 ", "cuda.attention_grad.cudnn "},
      {"cuda.attention_rows.sm90.d128 ", "cuda.attention.cudnn "},
      {"cuda.attention_rows_grad.sm90.d128 ", "cuda.attention_grad.cudnn "}};
  std::vector<std::string> list;
  for (auto [kernel, measured] : kernels)
    if (key.starts_with(kernel)) list.push_back(std::string(measured) + key.substr(kernel.size()));
  for (const std::string_view result : {" bf16 bf16", " fp16 f16"})
    if (key.ends_with(result)) list.push_back(key.substr(0, key.rfind(' ')) + " f32");
  return list;
}

// By the middle half of the samples: 1.349 standard deviations wide, if they are normal.
double spread_of(const Samples& ms) {
  constexpr size_t fewest = 6;
  if (ms.count() < fewest) return 0;
  return (ms.quantile(0.75) - ms.quantile(0.25)) / 1.349 / ms.median();
}

double distance(double a, double b) { return a > 0 && b > 0 ? std::log(a / b) : a == b ? 0 : 10; }

// k of a product with a known shape.
double sum_length(const CallTime& c) { return c.flops / (2 * double(c.shape.m) * double(c.shape.n)); }

// Longer sequences all have the same time for a query and a key.
constexpr int64_t long_sequence = 8192;

// Their mean number.
double keys_of_a_query(const CallTime& c) {
  const AttentionShape& s = c.attention;
  const double of_pair = (s.gradient ? 10 : 4) * double(s.batch * s.heads * s.head_dim);
  return std::min(c.flops / (of_pair * double(s.queries)), double(long_sequence) / 2);
}

double squared_distance(const CallTime& a, const CallTime& b, bool shaped) {
  const double flops = distance(a.flops, b.flops), bytes = distance(a.bytes, b.bytes);
  if (!shaped) return flops * flops + bytes * bytes;
  if (a.attention.known()) {
    const double heads = distance(double(a.attention.batch * a.attention.heads),
                                  double(b.attention.batch * b.attention.heads)),
                 queries = distance(double(std::min(a.attention.queries, long_sequence)),
                                    double(std::min(b.attention.queries, long_sequence))),
                 seen = distance(keys_of_a_query(a), keys_of_a_query(b));
    return heads * heads + queries * queries + seen * seen;
  }
  const double m = distance(double(a.shape.m), double(b.shape.m)), n = distance(double(a.shape.n), double(b.shape.n)),
               k = flops - m - n;
  return m * m + n * n + k * k;
}

}  // namespace

// With at most three columns, every set of active columns is tried.
std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows, const std::vector<double>& y) {
  size_t n = rows.empty() ? 0 : rows[0].size();
  std::vector<double> best(n, 0);
  double best_error = INFINITY;
  for (size_t set = 1; set < (size_t(1) << n); ++set) {
    std::vector<size_t> use;
    for (size_t i = 0; i < n; ++i)
      if (set >> i & 1) use.push_back(i);
    std::vector<double> x(n, 0);
    if (use.size() > rows.size() || !solve(rows, y, use, x)) continue;
    if (std::any_of(x.begin(), x.end(), [](double v) { return !(v >= 0); })) continue;
    double error = 0;
    for (size_t r = 0; r < rows.size(); ++r) error += std::pow(dot(rows[r], x) / y[r] - 1, 2);
    if (error + 1e-12 < best_error) best_error = error, best = x;
  }
  return best;
}

// The correction of the nearest measured sizes fades with distance: half is left at a factor of e
// in FLOPs or bytes, or in a size of a product.
double TimeModel::Fit::ms(const CallTime& call) const {
  const bool shapes = shaped && call.shaped();
  double sum = 0, weights = 1;
  for (size_t i = 0; i < points.size(); ++i) {
    double weight = 1 / (squared_distance(call, points[i], shapes) + 1e-6);
    sum += weight * std::log(ratios[i]), weights += weight;
  }
  return dot(features(call, shaped), line) * std::exp(sum / weights);
}

TimeModel::Row TimeModel::row_of(const ProfileInstr& r) {
  double calls = std::max(1, r.calls);
  return {key_of(r),
          r.op_class,
          r.arithmetic,
          std::max(1, r.calls),
          {r.flops / calls, r.bytes / calls, r.ms / calls, product_shape(r), tiled_attention(r)},
          r.floor_ms / calls};
}

TimeModel::Work TimeModel::prepare(const std::vector<Row>& rows) {
  Work work;
  std::map<std::tuple<std::string_view, std::string_view, double, double, double, ProductShape, AttentionShape>, size_t>
      index;
  for (auto& r : rows) {
    auto [it, added] = index.emplace(std::tuple(std::string_view(r.key), std::string_view(r.arithmetic), r.call.flops,
                                                r.call.bytes, r.floor_ms, r.call.shape, r.call.attention),
                                     work.rows.size());
    if (added) work.rows.push_back(r);
    work.instrs.emplace_back(it->second, r.calls);
  }
  return work;
}

TimeModel::Work TimeModel::prepare(const Profile& profile) {
  std::vector<Row> rows;
  for (auto& instr : profile.instrs) rows.push_back(row_of(instr));
  return prepare(rows);
}

void TimeModel::summarize(Step& step) {
  step.work = prepare(step.rows);
  std::map<std::tuple<std::string, double, double, ProductShape, AttentionShape>, Samples> equal;
  for (auto& row : step.rows) {
    step.rows_ms += row.call.ms * row.calls, step.calls += row.calls;
    if (row.call.shape.known()) step.products += row.call.ms * row.calls;
    if (!(row.call.ms > 0)) continue;
    equal[{row.key, row.call.flops, row.call.bytes, row.call.shape, row.call.attention}].add(row.call.ms);
    if (row.floor_ms > 0)
      for (const std::string& c : {row.op_class, std::string()})
        step.over_floor[c].push_back(row.call.ms / row.floor_ms);
  }
  if (step.rows_ms > 0) step.products /= step.rows_ms;
  for (auto& [what, ms] : equal) {
    auto& [key, flops, bytes, shape, attention] = what;
    step.points.push_back({key, {flops, bytes, ms.mean(), shape, attention}});
  }
}

void TimeModel::add(const Profile& p) {
  Step step;
  step.ms = p.step_median_ms();
  step.spread = spread_of(Samples(p.step_ms));
  for (auto& instr : p.instrs) step.rows.push_back(row_of(instr));
  for (auto& rate : p.rates)
    if (std::none_of(rates_.begin(), rates_.end(), [&](auto& r) { return r.name == rate.name; }))
      rates_.push_back(rate);
  set_limits(step.rows);
  summarize(step);
  set_tiles(step);
  steps_.push_back(std::move(step));
  fitted_ = false;
}

void TimeModel::set_tiles(CallTime& call) const {
  if (call.shape.known()) call.tiles = tile_factor(call.shape, sum_length(call), multiprocessors_);
  if (call.attention.known()) call.tiles = tile_factor(call.attention, multiprocessors_);
}

void TimeModel::set_tiles(Step& step) const {
  for (auto& [key, point] : step.points) set_tiles(point);
  for (auto& row : step.work.rows) set_tiles(row.call);
}

void TimeModel::set_multiprocessors(int64_t count) {
  multiprocessors_ = count;
  for (auto& step : steps_) set_tiles(step);
  fitted_ = false;
}

double TimeModel::rate(const std::string& name) const {
  for (auto& r : rates_)
    if (r.name == name) return r.per_second;
  return 0;
}

// Floors and tiles, by the model's own limits of the device.
void TimeModel::set_limits(std::vector<Row>& rows) const {
  for (auto& row : rows) {
    bool link = row.arithmetic == host_link_rate;
    double flops = rate(row.arithmetic), bandwidth = link ? flops : rate("bandwidth");
    if (link && bandwidth <= 0) bandwidth = usual_host_link;
    if (flops <= 0) flops = rate("fp32");
    row.floor_ms =
        1e3 * std::max(flops > 0 ? row.call.flops / flops : 0, bandwidth > 0 ? row.call.bytes / bandwidth : 0);
    set_tiles(row.call);
  }
}

TimeModel::Fits TimeModel::fit(size_t without) const {
  Fits fits;
  std::map<std::string, std::vector<double>> over_floor;
  std::vector<std::vector<double>> sums;
  std::vector<double> measured;
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (s == without) continue;
    const Step& step = steps_[s];
    const double slower = clock_factor(step.ms, step.products);
    for (auto& [key, point] : step.points) {
      fits.classes[key].points.push_back(point);
      if (point.shape.known()) fits.classes[key].points.back().ms /= slower;
    }
    for (auto& [op_class, ratios] : step.over_floor)
      over_floor[op_class].insert(over_floor[op_class].end(), ratios.begin(), ratios.end());
    sums.push_back({step.rows_ms, step.calls, 1}), measured.push_back(step.ms);
  }
  for (auto& [key, fit] : fits.classes) {
    fit.shaped = std::all_of(fit.points.begin(), fit.points.end(), [](auto& p) { return p.shaped(); });
    std::vector<std::vector<double>> x;
    std::vector<double> y;
    for (auto& p : fit.points) x.push_back(features(p, fit.shaped)), y.push_back(p.ms);
    fit.line = fit_nonnegative(x, y);
    for (size_t i = 0; i < y.size(); ++i) fit.ratios.push_back(y[i] / dot(x[i], fit.line));
  }
  for (auto& [op_class, ratios] : over_floor) fits.over_floor[op_class] = Samples(ratios).median();
  fits.step = fit_nonnegative(sums, measured);
  return fits;
}

const TimeModel::Fit* TimeModel::stand_in(const Fits& fits, const std::string& key) {
  for (const std::string& other : stand_ins(key))
    if (auto it = fits.classes.find(other); it != fits.classes.end()) return &it->second;
  return nullptr;
}

StepPrediction TimeModel::predict(const Fits& fits, const Work& work, double waits_ms) {
  std::vector<std::pair<double, bool>> ms;  // by row; whether its class was measured
  std::vector<bool> limited;                // by row: a product, so the clock counts
  for (auto& row : work.rows) {
    auto own = fits.classes.find(row.key);
    const Fit* fit = own != fits.classes.end() ? &own->second : stand_in(fits, row.key);
    limited.push_back(fit && fit->shaped && row.call.shape.known());
    if (fit) {
      // It may read and write more than its stand-in, so the floor counts.
      ms.emplace_back(std::max(fit->ms(row.call), own == fits.classes.end() ? row.floor_ms : 0), true);
      continue;
    }
    auto kind = fits.over_floor.find(row.op_class);  // as far above its floor as others of its kind
    if (kind == fits.over_floor.end()) kind = fits.over_floor.find("");
    ms.emplace_back(row.floor_ms * (kind == fits.over_floor.end() ? 1 : kind->second), false);
  }
  double sum = 0, all = 0, known = 0, products = 0;
  for (auto& [row, calls] : work.instrs) {
    sum += ms[row].first * calls, all += calls;
    if (limited[row]) products += ms[row].first * calls;
  }
  const double slower =
      clock_factor(dot({sum, all, 1}, fits.step) + waits_ms, sum > 0 ? products / (sum + waits_ms) : 0);
  for (size_t i = 0; i < ms.size(); ++i)
    if (limited[i]) ms[i].first *= slower;
  StepPrediction p;
  sum = 0;
  for (auto& [row, calls] : work.instrs) {
    p.instr_ms.push_back(ms[row].first * calls);
    if (ms[row].second) known += p.instr_ms.back();
    sum += p.instr_ms.back();
  }
  p.known = sum > 0 ? known / sum : 0;
  p.ms = dot({sum, all, 1}, fits.step);
  return p;
}

double TimeModel::spread() const {
  Samples spreads;
  for (auto& step : steps_)
    if (step.spread > 0) spreads.add(step.spread);
  return spreads.empty() ? 0 : spreads.median();
}

std::vector<double> TimeModel::errors() const {
  std::vector<double> list;
  if (steps_.size() < 3) return list;
  for (size_t s = 0; s < steps_.size(); ++s)
    list.push_back(std::abs(std::log(predict(fit(s), steps_[s].work).ms / steps_[s].ms)));
  return list;
}

const TimeModel::Fits& TimeModel::fits() const {
  if (fitted_) return fits_;
  if (steps_.empty()) fail_internal("a time was predicted from no measurement");
  fits_ = fit(none);
  std::vector<double> list = errors();
  range_ = list.empty() ? unchecked : std::max(least, Samples(list).quantile(0.9));
  fitted_ = true;
  return fits_;
}

StepPrediction TimeModel::predict(const Work& given, double waits_ms) const {
  Work work = given;
  set_limits(work.rows);
  StepPrediction p = predict(fits(), work, waits_ms);
  double half = range_ + (1 - p.known) * std::log(unmeasured);
  p.low_ms = p.ms * std::exp(-half), p.high_ms = p.ms * std::exp(half);
  return p;
}

// Classes are listed once. Rows are [class, calls, FLOPs, bytes, ms, floor_ms] of one call, with
// equal rows merged. Products are [row, m, n], attention is [row, batch, queries, keys, heads,
// kv_heads, head_dim, window, gradient]; older files lack them.
Json TimeModel::to_json() const {
  std::map<std::string, size_t> index;
  Json classes = Json::array(), steps = Json::array(), rates = Json::array();
  for (auto& r : rates_) rates.push_back({{"name", r.name}, {"per_second", r.per_second}, {"source", r.source}});
  for (auto& step : steps_) {
    Json rows = Json::array(), products = Json::array(), attention = Json::array();
    for (auto& r : step.rows) {
      if (const AttentionShape& a = r.call.attention; a.known())
        attention.push_back(
            {rows.size(), a.batch, a.queries, a.keys, a.heads, a.kv_heads, a.head_dim, a.window, int64_t(a.gradient)});
      if (r.call.shape.known()) products.push_back({rows.size(), r.call.shape.m, r.call.shape.n});
      auto [it, added] = index.emplace(r.key, classes.size());
      if (added) classes.push_back({r.key, r.op_class});
      rows.push_back({it->second, r.calls, r.call.flops, r.call.bytes, r.call.ms, r.floor_ms});
    }
    steps.push_back({{"step_ms", step.ms}, {"spread", step.spread}, {"rows", rows}});
    if (!products.empty()) steps.back()["products"] = products;
    if (!attention.empty()) steps.back()["attention"] = attention;
  }
  Json json = {{"rates", rates}, {"classes", classes}, {"steps", steps}};
  if (multiprocessors_ > 0) json["multiprocessors"] = multiprocessors_;
  return json;
}

TimeModel TimeModel::from_json(const Json& json, const std::string& where) {
  auto wrong = [&](const std::string& what) {
    fail("not a calibration: " + what, where, "Make one: crest calibrate.");
  };
  auto list = [&](const Json& object, const char* key) -> const Json& {
    auto it = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || it == object.end() || !it->is_array()) wrong(fmt::format("'{}' is not a list", key));
    return *it;
  };
  auto positive = [&](const Json& value, const char* what) {
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>()))
      wrong(fmt::format("{} is not a number of at least 0", what));
    return value.get<double>();
  };
  auto whole = [&](const Json& value, const char* what) {
    const double number = positive(value, what);
    if (number < 1 || number > 1e9 || number != std::floor(number))
      wrong(fmt::format("{} is not a whole number from 1 to 1e9", what));
    return int64_t(number);
  };
  TimeModel m;
  for (auto& r : list(json, "rates")) {
    if (!r.is_object() || !r.contains("name") || !r["name"].is_string() || !r.contains("per_second"))
      wrong("a rate lacks name or per_second");
    auto source = r.find("source");
    if (source != r.end() && !source->is_string()) wrong("the source of a rate is not a text");
    m.rates_.push_back({r["name"], positive(r["per_second"], "a rate"), source == r.end() ? "" : *source});
  }
  const Json& classes = list(json, "classes");
  for (auto& c : classes)
    if (!c.is_array() || c.size() != 2 || !c[0].is_string() || !c[1].is_string()) wrong("a class is not two texts");
  if (json.contains("multiprocessors"))
    m.multiprocessors_ = whole(json["multiprocessors"], "the number of multiprocessors");
  for (auto& s : list(json, "steps")) {
    const Json& rows = list(s, "rows");
    if (!s.contains("step_ms")) wrong("a step lacks step_ms");
    Step step;
    step.ms = positive(s["step_ms"], "step_ms");
    if (!(step.ms > 0)) wrong("step_ms is 0");
    if (s.contains("spread")) step.spread = positive(s["spread"], "spread");
    for (auto& r : rows) {
      if (!r.is_array() || r.size() != 6) wrong("a row does not have six values");
      double index = positive(r[0], "a class"), calls = positive(r[1], "calls");
      if (index >= double(classes.size()) || index != std::floor(index)) wrong("a row names a class that is not there");
      if (calls < 1 || calls > 1e9) wrong("a row has no calls");
      const Json& c = classes[size_t(index)];
      step.rows.push_back({c[0],
                           read_op_class(c[1]),
                           "",
                           int(calls),
                           {positive(r[2], "flops"), positive(r[3], "bytes"), positive(r[4], "ms")},
                           positive(r[5], "floor_ms")});
    }
    if (std::none_of(step.rows.begin(), step.rows.end(), [](auto& r) { return r.call.ms > 0; }))
      wrong("a step has no rows with a time");
    auto call_at = [&](const Json& index) -> CallTime& {
      const double row = positive(index, "the row of a shape");
      if (row >= double(step.rows.size()) || row != std::floor(row)) wrong("a shape names a row that is not there");
      return step.rows[size_t(row)].call;
    };
    if (s.contains("products"))
      for (auto& p : list(s, "products")) {
        if (!p.is_array() || p.size() != 3) wrong("a product does not have three values");
        call_at(p[0]).shape = {whole(p[1], "a size of a product"), whole(p[2], "a size of a product")};
      }
    if (s.contains("attention"))
      for (auto& a : list(s, "attention")) {
        if (!a.is_array() || a.size() != 9) wrong("an attention does not have nine values");
        std::vector<int64_t> sizes;
        for (size_t i = 1; i < 7; ++i) sizes.push_back(whole(a[i], "a size of an attention"));
        AttentionShape shape = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]};
        if (shape.keys > most_keys || shape.keys % shape.queries || shape.heads % shape.kv_heads)
          wrong("the sizes of an attention do not fit together");
        shape.window = int64_t(std::min(positive(a[7], "a window"), double(shape.keys)));
        shape.gradient = positive(a[8], "the mark of a gradient") > 0;
        call_at(a[0]).attention = shape;
      }
    summarize(step);
    m.set_tiles(step);
    m.steps_.push_back(std::move(step));
  }
  if (m.steps_.empty()) wrong("it has no steps");
  return m;
}

}  // namespace crest
