#include "core/shape.h"

#include "core/error.h"

namespace crest {

Shape::Shape(std::initializer_list<int64_t> dims) {
  for (int64_t d : dims) push_back(d);
}

void Shape::push_back(int64_t d) {
  if (rank_ == max_rank) fail_internal("a tensor of more than 6 dimensions");
  dims_[rank_++] = d;
}

bool Shape::operator==(const Shape& o) const {
  if (rank_ != o.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if (dims_[i] != o.dims_[i]) return false;
  return true;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i)
    if (__builtin_mul_overflow(n, dims_[i], &n)) fail("the shape [" + text() + "] has more than 2^63 elements");
  return n;
}

Shape Shape::with_back(int64_t d) const {
  Shape s = *this;
  s[-1] = d;
  return s;
}

Shape Shape::contiguous_strides() const {
  Shape s = *this;
  int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) s.dims_[i] = stride, stride *= dims_[i];
  return s;
}

std::string Shape::text() const {
  std::string t;
  for (int i = 0; i < rank_; ++i) t += (i ? "," : "") + std::to_string(dims_[i]);
  return t;
}

}  // namespace crest
