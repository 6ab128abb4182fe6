#include "cli/lab_gemm.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "measure/bench_gemm.h"

namespace crest {

bool GemmCell::set(const std::string& key, const std::string& value) {
  int64_t* size = key == "m" ? &m_ : key == "n" ? &n_ : key == "k" ? &k_ : nullptr;
  if (size)
    *size = int64_t(number(key, value, 1, 1 << 20));
  else if (key == "precision")
    precision_ = value;
  else
    return LabCell::set(key, value);
  return true;
}

void GemmCell::finish() {
  if (!m_ || !n_ || !k_ || precision_.empty()) fail_usage("a gemm experiment needs m, n, k and precision");
  const std::vector<std::string> known = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"};
  if (std::find(known.begin(), known.end(), precision_) == known.end())
    fail_usage(fmt::format("'{}' is no precision", printable(precision_)), "", did_you_mean(precision_, known));
  const std::vector<std::string> multiplied = {"fp32", "tf32", "bf16", "fp16"};
  if (std::find(multiplied.begin(), multiplied.end(), precision_) == multiplied.end())
    absent_ = "no kernel multiplies " + precision_ + " yet";
  if (precision_ == "tf32" && device_.kind == "cpu") absent_ = "the CPU has no tf32";
}

void GemmCell::measure(LabContext& context, const std::string& grid, lab::Row& row) const {
  DType type = precision_ == "bf16" ? DType::bf16 : precision_ == "fp16" ? DType::f16 : DType::f32;
  BenchMeasure::check_interrupt();
  RunRecord record = context.bench.begin("gemm", device_, spec_.label, grid);
  row.run = record.uid;
  GemmRate measured;
  try {
    measured = measure_gemm_rate(type, linear_kernel_factory(device_, precision_ == "tf32"), {{m_, n_, k_}},
                                 rule(context.rounds));
  } catch (const Error& error) {
    context.bench.finish(record, "failed", nullptr, error.what());
    throw;
  }
  if (measured.seconds.empty()) {
    row.absent = "no fast kernel multiplies " + precision_ + " here";
    context.bench.finish(record, "failed", nullptr, row.absent);
    return;
  }
  time_columns(row, measured.seconds);
  row.columns["tflops"] = rate(2.0 * double(m_) * double(n_) * double(k_) / 1e12, row.columns["ms"]);
  record_samples(context, record, measured.seconds);
}

void GemmCell::record_samples(LabContext& context, RunRecord& record, const Samples& seconds) const {
  std::vector<SampleRow> samples;
  for (double s : seconds.values()) samples.push_back({s * 1e3, int(samples.size()), "", false});
  context.bench.recorder().add_samples(record, samples);
  context.bench.finish(record, "done",
                       {{"m", m_},
                        {"n", n_},
                        {"k", k_},
                        {"precision", precision_},
                        {"ms_median", seconds.median() * 1e3},
                        {"samples", seconds.count()}});
}

}  // namespace crest
