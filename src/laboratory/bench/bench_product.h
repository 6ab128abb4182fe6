// crest bench --product: single matrix products, by size and precision.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/bench_measure.h"
#include "measure/gemm.h"

namespace crest {

// "4096x4096x4096,1024x50304x768" as M, N, K. Usage errors name --product.
std::vector<GemmSize> parse_products(const std::string& text);
// The precisions of --precision, or all in which the device trains fast.
std::vector<std::string> product_precisions(const BenchOptions& options, const Device& device);

// A product c[m, n] = a[m, k] b[k, n] in one precision.
struct ProductRow {
  GemmSize size{};
  PrecisionRate measured;  // problem: why it has no times
  double peak = 0;         // FLOP/s of the data sheet; 0: no sheet

  double flops() const { return 2.0 * double(size.m) * double(size.n) * double(size.k); }
  const Samples& seconds() const { return measured.rate.seconds; }
  // The noise floor of two interleaved runs: odd samples against even ones, and the end of the
  // ratio's 95% interval farther from 1. NaN with fewer than 12 samples.
  double noise_floor() const;
};

nlohmann::ordered_json to_json(const ProductRow& row);
std::string text_of(const std::vector<ProductRow>& rows, bool color, size_t width);

// A finished record of kind "gemm".
void record_product(BenchMeasure& bench, RunRecord& record, const GemmSize& size, const PrecisionRate& measured);

// Measures, records and prints every product in every precision; the exit code.
int run_products(BenchMeasure& bench);

}  // namespace crest
