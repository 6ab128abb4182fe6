// kind = "gemm": a timed matrix multiplication.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench_product.h"
#include "core/error.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "lab/measurement.h"
#include "measure/gemm.h"

namespace crest {

class GemmMeasurement : public LabMeasurement {
 public:
  using LabMeasurement::LabMeasurement;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override { return "m, n, k, precision, library, " + LabMeasurement::keys(); }
  std::string identity() const override {
    return LabMeasurement::identity() + (which_ == LinearKernel::library ? " library" : "");
  }
  void finish() override;
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;

 private:
  void describe(const ProductDetail& detail, lab::Row& row) const;

  int64_t m_ = 0, n_ = 0, k_ = 0;
  std::string precision_;
  LinearKernel which_ = LinearKernel::trained;
};

bool GemmMeasurement::set(const std::string& key, const std::string& value) {
  int64_t* size = key == "m" ? &m_ : key == "n" ? &n_ : key == "k" ? &k_ : nullptr;
  if (size)
    *size = int64_t(number(key, value, 1, 1 << 20));
  else if (key == "precision")
    precision_ = value;
  else if (key == "library" && (value == "true" || value == "false"))
    which_ = value == "true" ? LinearKernel::library : LinearKernel::trained;
  else if (key == "library")
    fail_usage(fmt::format("'{}' is not true or false", printable(value)));
  else
    return LabMeasurement::set(key, value);
  return true;
}

void GemmMeasurement::finish() {
  if (!m_ || !n_ || !k_ || precision_.empty()) fail_usage("a gemm experiment needs m, n, k and precision");
  if (std::find(data_sheet_precisions.begin(), data_sheet_precisions.end(), precision_) == data_sheet_precisions.end())
    fail_usage(fmt::format("unknown precision '{}'", printable(precision_)), "",
               did_you_mean(precision_, data_sheet_precisions));
}

void GemmMeasurement::measure(LabContext& context, const std::string& grid, lab::Row& row) const {
  BenchMeasure::check_interrupt();
  RunRecord record = context.bench.begin("gemm", device_, spec_.label, grid);
  row.run = record.uid;
  PrecisionRate measured;
  try {
    measured = measure_precision(device_, precision_, {{m_, n_, k_}}, rule(context.rounds), which_);
  } catch (const Error& error) {
    context.bench.finish(record, "failed", nullptr, error.what());
    throw;
  }
  if (!measured.problem.empty()) {
    row.absent = measured.problem;
    context.bench.finish(record, "failed", nullptr, row.absent);
    return;
  }
  time_columns(row, measured.rate.seconds);
  describe(measured.detail, row);
  row.columns["tflops"] = rate(2.0 * double(m_) * double(n_) * double(k_) / 1e12, row.columns["ms"]);
  record_product(context.bench, record, {m_, n_, k_}, measured);
}

// Describes the kernel of the product. Unreported fields are missing, with the reason.
void GemmMeasurement::describe(const ProductDetail& d, lab::Row& row) const {
  auto text = [&](const char* column, const std::string& x, const char* missing) {
    row.columns[column] = x.empty() ? lab::Value::missing(missing) : lab::Value::of_text(x);
  };
  text("kernel", d.kernel, "no kernel");
  text("algorithm", d.algorithm, "Crest's own kernel: it is its only algorithm");
  text("tile", d.tile, "the kernel does not report its tile");
  row.columns["workspace_requested_bytes"] = d.requested_workspace
                                                 ? lab::Value::number(double(*d.requested_workspace))
                                                 : lab::Value::missing("the library allocates it and reports no size");
  row.columns["workspace_reserved_bytes"] = lab::Value::number(double(d.reserved_workspace));
  if (d.tile_m > 0 && device_.multiprocessors > 0) {
    auto pieces = [](int64_t n, int64_t tile) { return double((n + tile - 1) / tile); };
    row.columns["waves"] = lab::Value::number(pieces(m_, d.tile_m) * pieces(n_, d.tile_n) / device_.multiprocessors);
  } else {
    row.columns["waves"] = lab::Value::missing("the tile is unknown");
  }
}

std::unique_ptr<LabMeasurement> make_gemm_measurement(const lab::Experiment& e, lab::MeasurementSpec spec,
                                                      const Device& device, int64_t limit) {
  return std::make_unique<GemmMeasurement>(e, std::move(spec), device, limit);
}

}  // namespace crest
