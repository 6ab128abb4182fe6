// Shapes and strides of tensors: up to six dimensions, stored in place.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace crest {

class Shape {
 public:
  static constexpr int max_rank = 6;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? rank_ + i : i]; }
  int64_t back() const { return dims_[rank_ - 1]; }
  void push_back(int64_t d);
  bool operator==(const Shape& o) const;

  // Product of the dimensions (1 for a scalar); throws when it overflows.
  int64_t numel() const;
  // Product of all dimensions but the last: rows of a row-wise operation.
  int64_t rows() const { return rank_ == 0 ? 1 : back() == 0 ? 0 : numel() / back(); }
  // The same dimensions with the last one replaced.
  Shape with_back(int64_t d) const;
  std::vector<int64_t> dims() const { return {dims_, dims_ + rank_}; }
  // Row-major strides in elements.
  Shape contiguous_strides() const;
  std::string text() const;  // "4,256,768"

 private:
  int rank_ = 0;
  int64_t dims_[max_rank] = {};
};

}  // namespace crest
