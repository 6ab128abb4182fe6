// verify() finds each mistake of a pass, and names the instruction and the mistake.
#include "program/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "program/builder.h"
#include "program/text.h"

using namespace crest;

namespace {

// x, w -> h = linear(x, w); t = tanh(h); q = view of h; r = all_reduce(t) in place of t; outputs:
// r.
struct Sample {
  Program p;
  ValueId x, w, h, t, q, r;

  Sample() {
    p.name = "sample";
    Builder b(p);
    x = b.declare("x", DType::f32, {1, 4, 8}, Role::input, Lifetime::micro_step);
    w = b.declare("w", DType::f32, {8, 8}, Role::weight, Lifetime::persistent);
    p.inputs = {x};
    b.origin = Origin("a");
    h = b.emit1("linear", {x, w});
    b.origin = Origin("b");
    t = b.emit1("tanh", {h});
    q = b.emit1("split_heads", {h}, Attrs().set("heads", 2).set("kv_heads", 0));
    r = b.emit1("all_reduce", {t}, Attrs().set("mean", 0));
    p.outputs = {r};
  }
};

std::string problem(const Program& p) {
  try {
    verify(p, "some_pass");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::failed);
    return e.what();
  }
  return "";
}

struct Broken {
  const char* name;
  std::function<void(Sample&)> change;
  std::vector<std::string> says;
};

std::ostream& operator<<(std::ostream& out, const Broken& b) { return out << b.name; }

const std::vector<Broken>& broken() {
  static const std::vector<Broken> all = {
      {"read_before_write",
       [](Sample& s) { std::swap(s.p.code[0], s.p.code[1]); },
       {"before it is written", "instruction 0 (tanh at b)"}},
      {"consumed_version_read",
       [](Sample& s) {
         Builder b(s.p);
         b.origin = Origin("late");
         b.emit1("tanh", {s.t});
       },
       {"%b.tanh", "consumed", "instruction 4 (tanh at late)"}},
      {"consumed_through_a_view",
       [](Sample& s) {
         Builder b(s.p);
         b.origin = Origin("late");
         b.emit("all_reduce", {s.h}, Attrs().set("mean", 0));
         b.emit1("join_heads", {s.q});
       },
       {"reads %b.split_heads", "consumed"}},
      {"host_memory_read",
       [](Sample& s) { s.p.at(s.w).space = MemorySpace::host; },
       {"%w is in host memory", "linear needs it in device memory", "instruction 0"}},
      {"device_memory_copied_in",
       [](Sample& s) {
         Builder b(s.p);
         b.origin = Origin("late");
         ValueId buffer = b.declare("buffer", DType::u8, {512}, Role::state, Lifetime::micro_step);
         b.emit1("copy_in", {s.w, buffer});
       },
       {"%w is in device memory", "copy_in needs it in host memory", "instruction 4 (copy_in at late)"}},
      {"copied_into_a_small_buffer",
       [](Sample& s) {
         Builder b(s.p);
         b.origin = Origin("late");
         ValueId m = b.declare("m", DType::f32, {16}, Role::state, Lifetime::persistent);
         s.p.at(m).space = MemorySpace::host;
         ValueId buffer = b.declare("buffer", DType::u8, {63}, Role::state, Lifetime::micro_step);
         b.emit1("copy_in", {m, buffer});
       },
       {"%late.copy_in reaches beyond its storage %buffer"}},
      {"host_memory_of_a_step",
       [](Sample& s) { s.p.at(s.x).space = MemorySpace::host; },
       {"%x is in host memory, but it is neither persistent nor a copy"}},
      {"a_view_in_other_memory",
       [](Sample& s) { s.p.at(s.q).space = MemorySpace::host; },
       {"%b.split_heads is in host memory, its storage %a.linear in device memory"}},
      {"output_consumed", [](Sample& s) { s.p.outputs.push_back(s.t); }, {"output %b.tanh is consumed"}},
      {"result_is_not_there", [](Sample& s) { s.p.outputs = {ValueId(99)}; }, {"output list refers to value 99"}},
      {"double_producer", [](Sample& s) { s.p.code.push_back(s.p.code[1]); }, {"%b.tanh is written twice"}},
      {"duplicate_names", [](Sample& s) { s.p.at(s.t).name = "w"; }, {"two values are named %w"}},
      {"missing_origin", [](Sample& s) { s.p.code[2].origin = Origin(); }, {"no origin", "instruction 2"}},
      {"wrong_dtype", [](Sample& s) { s.p.at(s.r).dtype = DType::bf16; }, {"inference gives f32[1,4,8]"}},
      {"wrong_shape",
       [](Sample& s) {
         s.p.at(s.r).shape = {1, 2, 8};
         s.p.at(s.r).layout.strides = s.p.at(s.r).shape.contiguous_strides();
       },
       {"is f32[1,2,8], but inference gives f32[1,4,8]"}},
      {"inputs_do_not_fit",
       [](Sample& s) {
         s.p.code[0].in = {s.w, s.x};
       },
       {"linear"}},
      {"too_few_outputs", [](Sample& s) { s.p.code[1].out.clear(); }, {"has 0 outputs, but inference gives 1"}},
      {"view_beyond_storage", [](Sample& s) { s.p.at(s.q).layout.offset = 4; }, {"reaches beyond its storage"}},
      {"view_before_storage", [](Sample& s) { s.p.at(s.q).layout.offset = -1; }, {"reaches beyond its storage"}},
      {"view_elsewhere",
       [](Sample& s) {
         s.p.at(s.q).layout = {s.w, 0, s.p.at(s.q).layout.strides};
       },
       {"must share the memory of input 0"}},
      {"rows_that_the_reader_does_not_support",
       [](Sample& s) {
         s.p.at(s.h).layout.strides = {64, 16, 1};
       },
       {"tanh", "must be contiguous, but has strides [64,16,1]"}},
      {"rows_that_the_writer_does_not_support",
       [](Sample& s) {
         s.p.at(s.t).layout.strides = {64, 16, 1};
       },
       {"%b.tanh has strides [64,16,1], but tanh writes a contiguous value"}},
      {"columns_instead_of_rows",
       [](Sample& s) {
         s.p.at(s.h).layout.strides = {32, 1, 4};
       },
       {"%a.linear has strides [32,1,4], but linear writes dense rows at equal distances"}},
      {"storage_is_a_view", [](Sample& s) { s.p.at(s.r).layout.storage = s.q; }, {"is not a storage"}},
      {"storage_is_not_there", [](Sample& s) { s.p.at(s.r).layout.storage = 77; }, {"layout refers to value 77"}},
      {"input_is_not_there", [](Sample& s) { s.p.code[1].in[0] = 77; }, {"input refers to value 77"}},
      {"output_is_not_there", [](Sample& s) { s.p.code[1].out[0] = -5; }, {"output refers to value -5"}},
      {"missing_input", [](Sample& s) { s.p.code[1].in = {no_value}; }, {"tanh"}},
  };
  return all;
}

class Verify : public ::testing::TestWithParam<Broken> {};

}  // namespace

TEST(Verify, AcceptsASoundProgram) { EXPECT_EQ(problem(Sample().p), ""); }

TEST_P(Verify, Rejects) {
  Sample s;
  GetParam().change(s);
  std::string text = problem(s.p);
  ASSERT_NE(text, "") << "accepted";
  for (auto& part : GetParam().says) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

INSTANTIATE_TEST_SUITE_P(Rules, Verify, ::testing::ValuesIn(broken()),
                         [](auto& info) { return std::string(info.param.name); });

TEST(Verify, NamesProgramAndPass) {
  Sample s;
  s.p.code[0].origin = Origin();
  EXPECT_NE(problem(s.p).find("program sample after pass some_pass"), std::string::npos) << problem(s.p);
}

TEST(Verify, LooksIntoBodies) {
  Sample s;
  auto body = std::make_shared<Program>();
  Builder inside(*body);
  inside.origin = Origin("b");
  ValueId a = inside.declare("a", DType::f32, {1, 4, 8}, Role::input, Lifetime::micro_step);
  ValueId c = inside.emit1("scale", {inside.emit1("tanh", {a})}, Attrs().set("value", 2.0));
  body->inputs = {a}, body->outputs = {c};
  s.p.code[1].op = &op("fused");
  s.p.code[1].body = body;
  EXPECT_EQ(problem(s.p), "");
  std::swap(body->code[0], body->code[1]);
  EXPECT_NE(problem(s.p).find("before it is written"), std::string::npos) << problem(s.p);
  std::swap(body->code[0], body->code[1]);
  body->code[0].in.clear();
  EXPECT_NE(problem(s.p).find("tanh"), std::string::npos);
  body->code[0].in = {a};
  Value& t = body->at(body->code[0].out[0]);
  t.shape = {4, 8};
  t.layout.strides = t.shape.contiguous_strides();
  EXPECT_NE(problem(s.p).find("inference gives"), std::string::npos) << problem(s.p);
}

// Also if its only member is as large. An operation in place consumes it.
TEST(Verify, AGroupOfOneKeepsItsRootReadable) {
  Program p;
  Builder b(p);
  ValueId scalars = b.declare("scalars", DType::u8, {64}, Role::state, Lifetime::persistent);
  ValueId root = b.declare("gradients", DType::f32, {8}, Role::gradient, Lifetime::step);
  ValueId dy = b.declare("dy", DType::f32, {3, 8}, Role::input, Lifetime::micro_step);
  p.inputs = {dy};
  b.origin = Origin("a");
  ValueId g = b.emit1("bias_grad", {dy});
  p.at(g).layout.storage = root;
  p.at(g).lifetime = Lifetime::step, p.at(g).role = Role::gradient;
  ValueId sum = b.emit1("bias_grad", {dy, g});
  b.emit("grad_norm", {scalars, root}, Attrs().set("clip", 1.0));
  p.outputs = {sum};
  EXPECT_EQ(problem(p), "");
  p.outputs = {b.emit1("all_reduce", {root}, Attrs().set("mean", 0))};
  EXPECT_EQ(problem(p), "");
  b.emit1("square_sum", {root});
  EXPECT_NE(problem(p).find("reads %gradients, which an earlier instruction consumed"), std::string::npos)
      << problem(p);
}

// A group's root may be read as a whole after its members were written; a member's old version may
// not.
TEST(Verify, GroupsKeepTheirRootReadable) {
  Program p;
  Builder b(p);
  ValueId scalars = b.declare("scalars", DType::u8, {64}, Role::state, Lifetime::persistent);
  ValueId root = b.declare("gradients", DType::f32, {64}, Role::gradient, Lifetime::step);
  ValueId dy = b.declare("dy", DType::f32, {3, 8}, Role::input, Lifetime::micro_step);
  p.inputs = {dy};
  b.origin = Origin("a");
  ValueId g = b.emit1("bias_grad", {dy});
  p.at(g).layout.storage = root, p.at(g).layout.offset = 8;
  p.at(g).lifetime = Lifetime::step, p.at(g).role = Role::gradient;
  b.emit("grad_norm", {scalars, root}, Attrs().set("clip", 1.0));
  EXPECT_EQ(problem(p), "");
  // A second value in the same place: the first is gone.
  ValueId again = b.emit1("bias_grad", {dy});
  p.at(again).layout.storage = root, p.at(again).layout.offset = 12;
  p.at(again).lifetime = Lifetime::step, p.at(again).role = Role::gradient;
  EXPECT_EQ(problem(p), "");
  p.outputs = {g};
  EXPECT_NE(problem(p).find("is consumed"), std::string::npos);
}
