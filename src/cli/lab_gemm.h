// kind = "gemm": a matrix product, timed.
#pragma once
#include "cli/lab_cell.h"

namespace crest {

class GemmCell : public LabCell {
 public:
  using LabCell::LabCell;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override { return "m, n, k, precision, " + LabCell::keys(); }
  void finish() override;
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;

 private:
  int64_t m_ = 0, n_ = 0, k_ = 0;
  std::string precision_;
};

}  // namespace crest
