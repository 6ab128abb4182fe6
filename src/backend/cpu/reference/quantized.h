// A block of 8-bit optimizer state as numbers. The nearest code is found by looking at all of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/reference/tensor.h"
#include "core/dynamic_code.h"

namespace crest::reference {

class Quantized {
 public:
  // Codes are input i, scales input i + 1.
  Quantized(const KernelCall& c, size_t i, int64_t begin, int64_t end, bool is_signed)
      : begin_(begin), block_(c.instr.attrs.integer("block")), signed_(is_signed) {
    double scale = input(c, i + 1)[begin / block_];
    for (int64_t e = begin; e < end; ++e)
      values_.push_back(scale * float(dynamic_value(c.input<uint8_t>(i)[e], signed_)));
  }
  double& operator[](int64_t e) { return values_[size_t(e - begin_)]; }
  // Codes to output o, the scale to output o + 1.
  void store(const KernelCall& c, size_t o) const {
    double scale = 0;
    for (double x : values_) scale = std::max(scale, std::fabs(x));
    output(c, o + 1).set(begin_ / block_, scale);
    for (size_t i = 0; i < values_.size(); ++i)
      c.output<uint8_t>(o)[size_t(begin_) + i] = scale > 0 ? nearest(values_[i] / scale) : 0;
  }

 private:
  uint8_t nearest(double x) const {
    int best = 0;
    double distance = std::fabs(x);
    for (int code = 1; code < 256; ++code)
      if (double d = std::fabs(x - float(dynamic_value(uint8_t(code), signed_))); d < distance)
        best = code, distance = d;
    return uint8_t(best);
  }
  int64_t begin_, block_;
  bool signed_;
  std::vector<double> values_;
};

}  // namespace crest::reference
