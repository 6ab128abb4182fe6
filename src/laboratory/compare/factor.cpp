#include "compare/compare.h"

namespace crest {

namespace {

constexpr struct {
  const char *name, *label;
} words[factor_count] = {
    {"flops", "arithmetic work"},        {"rate", "arithmetic rate"},
    {"bytes", "memory traffic"},         {"bandwidth", "memory bandwidth"},
    {"efficiency", "kernel efficiency"}, {"clocks", "clocks"},
    {"communication", "communication"},  {"unsplit", "kernel time"},
    {"idle", "launches and gaps"},       {"overlap", "overlap"},
    {"residual", "unexplained"},
};

}  // namespace

const char* name(Factor factor) { return words[size_t(factor)].name; }
const char* label(Factor factor) { return words[size_t(factor)].label; }

}  // namespace crest
