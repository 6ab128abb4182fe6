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

enum class Kernels { reference, fast, none };  // none: nothing runs, the result is what a run starts from

// The memory of a Program, with the numbers that a run starts from.
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
  // What a value of this name, role and type starts from.
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
  std::vector<bool> group_;                // storages that hold other values
};

// Every input, weight, gradient and state gets numbers that depend on its name and the element
// only, so that two Programs of one model start alike; rows that padding added get 100 (they must
// not matter). Returns, after the run and by name, the outputs and every value that outlives the
// micro step; without padding.
std::map<std::string, std::vector<double>> evaluate(const Program& program, Kernels kernels);

// The largest relative L2 distance of what both hold; `where` names it. Fails the test when they
// have nothing in common or a number is not finite.
double distance(const std::map<std::string, std::vector<double>>& a,
                const std::map<std::string, std::vector<double>>& b, std::string* where);

}  // namespace crest::test
