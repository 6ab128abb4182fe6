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

void GemmCell::measure(LabContext&, const std::string&, lab::Row& row) const {
  DType type = precision_ == "bf16" ? DType::bf16 : precision_ == "fp16" ? DType::f16 : DType::f32;
  GemmRate measured =
      measure_gemm_rate(type, linear_kernel_factory(device_, precision_ == "tf32"), {{m_, n_, k_}}, rule());
  if (measured.seconds.empty()) {
    row.absent = "no fast kernel multiplies " + precision_ + " here";
    return;
  }
  time_columns(row, measured.seconds);
  row.columns["tflops"] = rate(2.0 * double(m_) * double(n_) * double(k_) / 1e12, row.columns["ms"]);
}

}  // namespace crest
