// Runs a Program in memory of its own, without planner and executor: every storage is separate and
// starts as NaN.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "one_rank.h"
#include "program/program.h"

namespace crest::test {

enum class Kernels { reference, fast, none };  // none: nothing runs, the result is the start of a run

// The memory of a Program, with the initial numbers of a run.
class Memory {
 public:
  Memory(const Program& p, Kernels kernels, std::shared_ptr<OneRank> rank = nullptr);
  void launch(const Instr& instr) const;
  uint8_t* at(ValueId v) const;
  // All elements, in order.
  std::vector<double> read(ValueId v) const;
  void write(ValueId v, const std::vector<double>& numbers) const;
  // Without padding.
  std::vector<double> numbers(ValueId v) const;
  // Whether other values are parts of it.
  bool is_group(ValueId v) const { return group_[size_t(v)]; }
  // The initial value for this name, role and type.
  std::vector<double> start(const Value& v) const;

 private:
  struct alignas(64) Line {
    uint8_t bytes[64] = {};
  };
  int64_t logical(const Value& value) const;
  int64_t vocab() const;

  const Program& p_;
  Kernels kernels_;
  std::shared_ptr<OneRank> rank_;          // null: it is the only one
  std::vector<std::vector<Line>> blocks_;  // by storage
  std::vector<bool> group_;                // storages with other values
};

// Every input, weight, gradient and state gets numbers from its name and the element only, so two
// Programs of one model start alike; padding rows get 100 (they must not matter). Returns, after
// the run and by name, the outputs and every value with a life beyond the micro step; without
// padding.
std::map<std::string, std::vector<double>> evaluate(const Program& program, Kernels kernels);

// The largest relative L2 distance of common entries; `where` names it. Fails the test without
// common entries, and for NaN or infinity.
double distance(const std::map<std::string, std::vector<double>>& a,
                const std::map<std::string, std::vector<double>>& b, std::string* where);

}  // namespace crest::test
