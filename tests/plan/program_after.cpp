#include "plan/program_after.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "device/find.h"
#include "passes/tiny.h"
#include "program/op.h"

using namespace crest;
using namespace crest::test;

namespace {

Program after(const std::string& pass) {
  Device device = cpu_device(Isa::avx512_bf16, 1);
  Recipe recipe = tiny_recipe();
  recipe.precision = "bf16", recipe.fusion = "on";
  recipe = resolve(recipe, device);
  SessionUse use;
  use.train = true;
  return program_after(recipe, device, session_programs(recipe, use)[0], pass);
}

bool has(const Program& p, const std::string& op) {
  return std::any_of(p.code.begin(), p.code.end(), [&](auto& i) { return i.op->name == op; });
}

bool has_backward(const Program& p) {
  return std::any_of(p.code.begin(), p.code.end(), [](auto& i) { return i.phase == Phase::backward; });
}

}  // namespace

TEST(ProgramAfter, ModelIsTheForwardProgramThatNoPassHasTouched) {
  Program p = after("model");
  EXPECT_TRUE(has(p, "linear") && has(p, "norm") && has(p, "gelu"));
  EXPECT_FALSE(has_backward(p));
  for (auto& v : p.values) EXPECT_NE(v.dtype, DType::bf16) << v.name;
}

TEST(ProgramAfter, APassIsTheLastToRun) {
  EXPECT_FALSE(has_backward(after("precision")));
  Program p = after("autograd");
  EXPECT_TRUE(has_backward(p) && has(p, "gelu"));
  EXPECT_FALSE(has(after("fusion"), "gelu"));
  EXPECT_THROW(after("autograt"), Error);
}
