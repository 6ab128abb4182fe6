// Mode check: every kernel of a case gives the result of the reference kernel in double for the
// same inputs. This also holds with an output in the memory of an input, if the operation allows
// it. Mode support: every case has a kernel, every operation has cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "device/kernels.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "program/op.h"

namespace crest::test {

namespace {

// Rank-dependent operations; their tests are with the communicators and whole runs
// (tests/train/reductions.cpp, shard.cpp).
bool between_ranks(const std::string& op) {
#define CREST_NAME(name, inputs, outputs) #name,
  static const std::set<std::string> names = {CREST_COLLECTIVE_OPS(CREST_NAME)};
#undef CREST_NAME
  return names.count(op) > 0;
}

struct Pair {
  const Case* c;
  const Kernel* kernel;
  const Device* device;
};

void PrintTo(const Pair& p, std::ostream* os) { *os << p.c->op << " " << p.c->name << " on " << p.kernel->name; }

std::string reject_reason(const Kernel& kernel, const Device& device, const Case& c) {
  Single s(c);
  return kernel.reject({s.program, s.instr(), device});
}

// The emulated GPU computes in float whichever 16-bit float is stored: a case
// in both goes to a kernel in only one of them. To a kernel called generic,
// without vectors of dtype-dependent length, f32 is alike, too. The choice has
// no period in the list (like the sequence of Thue and Morse), so no attribute
// of the cases goes with a dtype. A real GPU has instructions for each dtype,
// and runs all. Kernels without TF32 compute its cases as any other in f32.
void leave_out_alike(std::vector<Pair>& all) {
  auto group_of = [](const Pair& p) -> std::optional<std::pair<const Kernel*, std::string>> {
    if (p.device->kind != "cuda" || !p.device->emulated) return std::nullopt;
    std::vector<std::string> alike = {"_bf16", "_f16"};
    if (std::string_view(p.kernel->name).ends_with(".generic")) alike.push_back("_f32");
    for (const std::string& dtype : alike)
      if (p.c->name.ends_with(dtype)) return std::pair(p.kernel, p.c->name.substr(0, p.c->name.size() - dtype.size()));
    return std::nullopt;
  };
  std::map<std::pair<const Kernel*, std::string>, std::vector<const Case*>> groups;
  for (const Pair& p : all)
    if (auto group = group_of(p)) groups[*group].push_back(p.c);
  std::map<const Kernel*, unsigned> seen;
  for (const Pair& p : all)  // in the order of the list
    if (auto group = group_of(p))
      if (auto& cases = groups[*group]; cases.size() > 1 && cases[0] == p.c)
        cases = {cases[size_t(std::popcount(seen[p.kernel]++)) % cases.size()]};
  std::erase_if(all, [&](const Pair& p) {
    bool emulated = p.device->kind == "cuda" && p.device->emulated;
    if (emulated && p.c->attrs.integer("tf32", 0) && std::string_view(p.kernel->name).find("tf32") == std::string::npos)
      return true;
    auto group = group_of(p);
    return group && std::count(groups[*group].begin(), groups[*group].end(), p.c) == 0;
  });
}

// Case by case, so all kernels of a case share its values. For an emulated CPU the cases refused by
// the real one: the kernels of its matrix units.
std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const Case& c : all_cases())
    for (const Device& d : devices())
      for (const Kernel* k : kernels_for(c.op, d)) {
        bool known = d.kind == "cpu" && d.emulated && reject_reason(*k, cpu(), c).empty();
        if (!known && reject_reason(*k, d, c).empty()) all.push_back({&c, k, &d});
      }
  leave_out_alike(all);
  return all;
}

// Declared (output, input) pairs of one size, as the planner would use them.
std::vector<std::pair<ValueId, ValueId>> overlays(const Case& c) {
  Single s(c);
  std::vector<std::pair<ValueId, ValueId>> found;
  for (auto [o, i] : s.instr().op->may_overlay) {
    ValueId in = size_t(i) < s.instr().in.size() ? s.instr().in[size_t(i)] : no_value, out = s.instr().out[size_t(o)];
    if (in == no_value) continue;
    const Value &x = s.program.at(in), &y = s.program.at(out);
    bool same_rows = (x.contiguous() && y.contiguous()) || x.layout.strides == y.layout.strides;
    if (same_rows && x.storage_bytes() == y.storage_bytes()) found.emplace_back(out, in);
  }
  return found;
}

std::string pair_name(const testing::TestParamInfo<Pair>& info) {
  const Pair& p = info.param;
  return identifier(device_name(*p.device) + "_" + p.c->op + "_" + p.c->name + "_on_" + p.kernel->name);
}

bool has_bias(const Case& c) { return c.op == "norm_grad" && c.attrs.integer("bias", 0) != 0; }

// Relative L2 error allowed for an output of dtype t.
// f32: sums of up to a few hundred products, rounded to 2^-24 each, in any order, and exponentials
// of 2 ulp: 1e-5.
// bf16: unit roundoff 2^-9 = 2e-3; kernels may round an intermediate (probabilities, ds) once
// before the result, and differences cancel a bit in attention's gradient: 1e-2.
// f16: the same with 2^-12 = 2.4e-4: 2e-3.
double tolerance(DType t) {
  switch (t) {
    case DType::bf16: return 1e-2;
    case DType::f16: return 2e-3;
    default: return 1e-5;
  }
}

// With products optionally rounded to TF32, f32 has the mantissa of f16.
//
// A fused body may round the operand of a column sum, and the product before it, to the operand's
// dtype, or not. So the f32 sums of a half-precision body have half-precision errors. The same
// holds for a bias gradient, as a sum of rounded values. Dropout with a cast rounds to the narrower
// dtype.
//
// A kernel that makes and quantizes a value first rounds it to its dtype. The reference in double
// does not round. So one number in thirty gets the next code, an eighth (e4m3) or a quarter (e5m2)
// away, and a number at the edge is counted or not.
double tolerance(const Case& c, const Value& output, size_t index) {
  double t = tolerance(output.dtype);
  const bool at_once = c.op.starts_with("norm_quantize") || c.op == "fused_update" ||
                       (c.op == "fused" && c.name.starts_with("quantized"));
  if (at_once && (is_fp8(output.dtype) || output.dtype == DType::i64)) return output.dtype == DType::e5m2 ? 8e-2 : 4e-2;
  if (at_once) t = std::max(t, tolerance(DType::bf16));  // the magnitude before rounding
  if (c.attrs.integer("tf32", 0)) t = std::max(t, tolerance(DType::f16));
  if (c.op == "fused" || c.op == "dropout" || c.op == "linear_dx_gelu_grad" ||
      (index == out::norm_grad::dbias && has_bias(c)))
    for (const Arg& a : c.in) t = std::max(t, tolerance(a.dtype));
  return t;
}

void expect_scalars(const std::vector<double>& out, const std::vector<double>& expected) {
  auto from = [](const std::vector<double>& bytes) {
    Scalars s;
    for (size_t i = 0; i < sizeof s; ++i) reinterpret_cast<uint8_t*>(&s)[i] = uint8_t(bytes[i]);
    return s;
  };
  Scalars a = from(out), b = from(expected);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.sample_base, b.sample_base);
  EXPECT_EQ(a.lr, b.lr);
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.length, b.length);
  EXPECT_EQ(a.adam_step, b.adam_step);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.found_inf, b.found_inf);
  EXPECT_EQ(a.good_steps, b.good_steps);
  EXPECT_EQ(a.skipped, b.skipped);
  if (b.found_inf) return;  // norm and factor of a skipped step are never read
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm);
  EXPECT_NEAR(a.grad_factor, b.grad_factor, 1e-5 * b.grad_factor);
}

// Quantized state: f32 and double may rarely disagree
// on a number in the middle between two codes.
void expect_codes(const std::vector<double>& out, const std::vector<double>& expected) {
  size_t other = 0;
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != expected[i]) {
      ++other;
      EXPECT_EQ(std::abs(out[i] - expected[i]), 1) << "code " << i;
    }
  EXPECT_LE(other, 1 + out.size() / 1000);
}

// A case's inputs, and its outputs in double.
struct CaseValues {
  Values in, expected;
};

// Of the last requested case: the tests of a case follow each other.
const CaseValues& values_of(const Case& c) {
  static const Case* of = nullptr;
  static CaseValues values;
  if (of != &c) {
    of = nullptr;
    values.in = make_values(c);
    values.expected = reference_outputs(in_double(c), values.in);
    of = &c;
  }
  return values;
}

class Check : public testing::TestWithParam<Pair> {
 protected:
  const Case& c = *GetParam().c;
  const Kernel& kernel = *GetParam().kernel;
  const Device& device = *GetParam().device;
  Single single{c};
  const Values& values = values_of(c).in;

  void expect_outputs(const Memory& memory) {
    const Values& expected = values_of(c).expected;
    const Instr& instr = single.instr();
    ASSERT_EQ(instr.out.size(), expected.size());
    for (size_t o = 0; o < instr.out.size(); ++o) {
      SCOPED_TRACE("output " + std::to_string(o));
      auto out = memory.read(instr.out[o]), wanted = expected[o];
      const Value& v = single.program.at(instr.out[o]);
      if (v.dtype == DType::u8) {
        if (v.shape == Shape{int64_t(sizeof(Scalars))})
          expect_scalars(out, expected[o]);
        else
          expect_codes(out, expected[o]);
        continue;
      }
      if (v.dtype == DType::u16) {  // low halves, of f32 numbers with possibly different last bits
        out = joined(out, memory.read(instr.out.back()));
        wanted = joined(wanted, expected.back());
      }
      double allowed = tolerance(c, v, o);
      // Tensor cores keep some 14 bits of the largest of the 8-bit products added at once.
      if (c.op == "linear_fp8" && is_gpu(device)) allowed = std::max(allowed, tolerance(DType::f16));
      EXPECT_LE(relative_error(out, wanted), allowed);
      // One wrong element of a large tensor would hardly change the norm. Errors of elements are
      // proportional to their size, at most some ten times the root mean square for these inputs.
      EXPECT_LE(worst_element(out, wanted), 30 * allowed);
    }
    EXPECT_TRUE(memory.guards_intact()) << "wrote outside of its memory";
  }
};

TEST_P(Check, AgreesWithTheReferenceInDouble) {
  Memory memory(single.program), untouched(single.program);
  for (Memory* m : {&memory, &untouched}) single.fill(*m, values);
  BoundKernel bound(kernel, device, single.program, single.instr(), memory);
  bound.launch();
  expect_outputs(memory);

  std::set<ValueId> written;  // storages
  for (ValueId v : single.instr().out) written.insert(single.program.at(v).layout.storage);
  for (ValueId v : single.instr().in)
    if (v != no_value && !written.count(v)) {
      EXPECT_EQ(memory.bytes(v), untouched.bytes(v)) << "changed an input";
    }

  for (auto [out, in] : overlays(c)) {
    SCOPED_TRACE("output %" + single.program.at(out).name + " over %" + single.program.at(in).name);
    Memory overlaid(single.program);
    single.fill(overlaid, values);
    overlaid.overlay(out, in);
    launch(kernel, device, single.program, single.instr(), overlaid);
    expect_outputs(overlaid);
  }

  auto outputs = [&] {
    std::vector<std::vector<uint8_t>> bytes;
    for (ValueId v : single.instr().out) bytes.push_back(memory.bytes(v));
    return bytes;
  };
  auto first = outputs();
  auto again = [&] {
    memory.poison();
    single.fill(memory, values);
    bound.launch();  // the workspace holds the launch before's remains
  };
  again();
  EXPECT_TRUE(outputs() == first) << "other bits the second time";
  if (!is_gpu(device) || !kernel.tune) return;
  SCOPED_TRACE("tuned");
  bound.tune();
  again();
  expect_outputs(memory);
  first = outputs();
  again();
  EXPECT_TRUE(outputs() == first) << "other bits the second time";
}

INSTANTIATE_TEST_SUITE_P(Ops, Check, testing::ValuesIn(pairs()), pair_name);

class Support : public testing::TestWithParam<const Device*> {};

TEST_P(Support, EveryCaseIsTakenByAKernel) {
  const Device& device = *GetParam();
  Device complete = device;  // no emulation, every unit and library: kernels in need of them must have a case, too
  complete.emulated = false;
  complete.amx = device.kind == "cpu";
  complete.cublaslt = complete.cudnn = complete.nvrtc = device.kind == "cuda";
  std::map<std::string, int> taken;
  for (const Case& c : all_cases()) {
    std::string refusals;
    bool any = false;
    for (const Kernel* k : kernels_for(c.op, device)) {
      std::string reason = reject_reason(*k, device, c);
      any |= reason.empty();
      if (reject_reason(*k, complete, c).empty()) ++taken[k->name];
      if (!reason.empty()) refusals += std::string("\n  ") + k->name + ": " + reason;
    }
    // Pass epilogues makes these only where a kernel takes them.
    static const std::set<std::string> joined = {"linear_swiglu", "linear_dx_sum", "linear_dx_gelu_grad",
                                                 "linear_dx_swiglu_grad"};
    bool made_for_kernels = joined.count(c.op) || has_bias(c) || (c.op == "norm_grad" && c.attrs.integer("keep", 0));
    EXPECT_TRUE(any || made_for_kernels) << c.op << " " << c.name << " is refused by every kernel:" << refusals;
    if (any && !refusals.empty()) std::cout << c.op << " " << c.name << refusals << "\n";
  }
  for (const Kernel& k : kernels_of(device.kind))
    if (k.launch && !between_ranks(k.op)) {  // without a launch: always refused, to say why
      EXPECT_GT(taken[k.name], 0) << k.name << " takes no case";
    }
}

std::vector<const Device*> device_pointers() {
  std::vector<const Device*> list;
  for (const Device& d : devices()) list.push_back(&d);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Ops, Support, testing::ValuesIn(device_pointers()),
                         [](auto& info) { return device_name(*info.param); });

TEST(Cases, EveryOperationHasCasesAndAReference) {
  std::set<std::string> covered;
  for (const Case& c : all_cases()) covered.insert(c.op);
  for (const OpDef* o : all_ops()) {
    if (between_ranks(o->name)) continue;
    EXPECT_TRUE(covered.count(o->name)) << o->name;
    EXPECT_NO_THROW(reference_kernel(o->name)) << o->name;
  }
}

}  // namespace
}  // namespace crest::test
