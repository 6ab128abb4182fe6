// Runs a Program in memory of its own, without planner and executor: every storage is separate and
// starts as NaN.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "program/program.h"

namespace crest::test {

enum class Kernels { reference, fast, none };  // none: nothing runs, the result is what a run starts from

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
