// Element access of the reference kernels: any storage dtype read and written as double. Clarity
// before speed.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "core/scalars.h"
#include "core/split_float.h"

namespace crest::reference {

// An argument of an instruction; false when an optional input is absent.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, const Value& value) : data_(data), value_(&value) {
    if (int64_t pitch = value.contiguous() ? 0 : value.pitch()) row_padding_ = pitch - value.shape.back();
  }
  explicit operator bool() const { return value_ != nullptr; }
  const Shape& shape() const { return value_->shape; }
  int64_t size(int d) const { return value_->shape[d]; }
  int64_t numel() const { return value_->numel(); }
  // Element `i`, in row-major order, of a tensor with contiguous elements or with a row pitch.
  double operator[](int64_t i) const { return load_element(data_, value_->dtype, i + before(i)); }
  void set(int64_t i, double x) const { store_element(data_, value_->dtype, i + before(i), x); }
  // The weight of a master (core/split_float.h).
  void set_weight(int64_t i, double master) const {
    set(i, value_->dtype == DType::bf16 ? to_float(split(float(master)).high) : master);
  }
  // Element of a four-dimensional view.
  double at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return load_element(data_, value_->dtype, place(a, b, c, d));
  }
  // All elements, as operator[] counts them.
  std::vector<double> values() const {
    std::vector<double> v(static_cast<size_t>(numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = (*this)[int64_t(i)];
    return v;
  }

 private:
  int64_t place(int64_t a, int64_t b, int64_t c, int64_t d) const {
    const Shape& s = value_->layout.strides;
    return a * s[0] + b * s[1] + c * s[2] + d * s[3];
  }
  // Elements between the rows before element i.
  int64_t before(int64_t i) const { return row_padding_ ? i / value_->shape.back() * row_padding_ : 0; }
  void* data_ = nullptr;
  const Value* value_ = nullptr;
  int64_t row_padding_ = 0;  // elements between two rows
};

inline Tensor input(const KernelCall& c, size_t i) { return c.has(i) ? Tensor(c.in[i], c.in_value(i)) : Tensor(); }
inline Tensor output(const KernelCall& c, size_t o) { return Tensor(c.out[o], c.out_value(o)); }
// Element i of an accumulator, 0 when it is absent; of factors, 1 when they are absent.
inline double so_far(const Tensor& acc, int64_t i) { return acc ? acc[i] : 0; }
inline double factor(const Tensor& factors, int64_t i) { return factors ? factors[i] : 1; }

// x as an element of this dtype holds it.
inline double rounded(DType t, double x) {
  double element = 0;  // has room for any dtype
  store_element(&element, t, 0, x);
  return load_element(&element, t, 0);
}

inline const Scalars& scalars(const KernelCall& c, size_t i) { return *c.input<Scalars>(i); }

// Value of one element of a pointwise operation; `value` is its attribute `value`.
using Pointwise = double (*)(const double* x, double value);
Pointwise pointwise_function(const char* op);

}  // namespace crest::reference
