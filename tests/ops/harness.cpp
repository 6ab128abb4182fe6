#include "ops/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/split_float.h"
#include "device.h"
#include "device/kernels.h"
#include "program/builder.h"

namespace crest::test {

Single::Single(const Case& c) {
  Builder b(program);
  b.origin = Origin("test");
  Instr instr;
  instr.op = &op(c.op);
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Arg& a = c.in[i];
    if (a.fill == Arg::Fill::absent) {
      instr.in.push_back(no_value);
      continue;
    }
    ValueId v = b.declare("in" + std::to_string(i), a.dtype, a.shape, Role::input, Lifetime::micro_step);
    if (a.strides.rank()) program.at(v).layout = {v, a.offset, a.strides};
    instr.in.push_back(v);
  }
  program.properties.set("rank", c.rank).set("ranks", c.ranks);
  instr.attrs = c.attrs;
  instr.body = c.body;
  instr.origin = b.origin;
  std::vector<ValueId> out = b.append(std::move(instr));
  for (size_t o = 0; o < c.out_pitch.size(); ++o)
    if (Value& v = program.at(out[o]); c.out_pitch[o] > 0)
      v.layout.strides = v.shape.with_back(c.out_pitch[o]).contiguous_strides();
}

void Single::fill(Memory& memory, const Values& values) const {
  for (size_t i = 0; i < instr().in.size(); ++i)
    if (instr().in[i] != no_value) memory.write(instr().in[i], values[i]);
}

static void attrs_in_double(Attrs& attrs) {
  if (attrs.has("dtype")) attrs.set("dtype", "f64");
}

Case in_double(const Case& c) {
  Case d = c;
  for (Arg& a : d.in)
    if (is_float(a.dtype)) a.dtype = DType::f64;
  attrs_in_double(d.attrs);
  if (c.body) {
    auto body = std::make_shared<Program>(*c.body);
    for (Value& v : body->values)
      if (is_float(v.dtype)) v.dtype = DType::f64;
    for (Instr& i : body->code) attrs_in_double(i.attrs);
    d.body = body;
  }
  return d;
}

Program with_dtype(const Program& program, DType t) {
  Program p = program;
  for (Value& v : p.values)
    if (is_float(v.dtype)) v.dtype = t;
  for (Instr& i : p.code)
    if (i.attrs.has("dtype")) i.attrs.set("dtype", std::string(name(t)));
  return p;
}

// The first `n` normal numbers of a stream, shared by the cases of an operation: drawing them anew
// for each took longer than most kernels.
static const std::vector<double>& normal_numbers(uint64_t seed, uint64_t stream, size_t n) {
  static std::map<std::pair<uint64_t, uint64_t>, std::vector<double>> drawn;
  std::vector<double>& x = drawn[{seed, stream}];
  for (size_t e = x.size(); e < n; ++e) x.push_back(normal(seed, stream, e));
  return x;
}

static std::vector<double> fill_arg(const Case& c, const Arg& a, uint64_t stream) {
  std::vector<double> x(a.fill == Arg::Fill::absent ? 0 : size_t(a.shape.numel()));
  uint64_t seed = std::hash<std::string>{}(c.op);
  constexpr size_t many = 100'000;  // more are not worth their memory
  const std::vector<double>& drawn =
      normal_numbers(seed, stream, a.fill == Arg::Fill::normal ? std::min(x.size(), many) : 0);
  for (size_t e = 0; e < x.size(); ++e) {
    uint32_t bits = random_bits(seed, stream, e);
    switch (a.fill) {
      case Arg::Fill::normal: x[e] = a.deviation * (e < many ? drawn[e] : normal(seed, stream, e)); break;
      case Arg::Fill::positive: x[e] = 0.5 + double(uniform(bits)); break;
      case Arg::Fill::ids: x[e] = double(bits % uint64_t(a.limit)); break;
      case Arg::Fill::targets: x[e] = e % 5 == 3 ? -1 - double(e % 2) * 99 : double(bits % uint64_t(a.limit)); break;
      case Arg::Fill::positions:
        x[e] = int64_t(e) % a.shape[1] == 0 || bits % uint64_t(a.limit) == 0 ? 0 : x[e - 1] + 1;
        break;
      case Arg::Fill::scalars: x[e] = reinterpret_cast<const uint8_t*>(&c.scalars)[e]; break;
      case Arg::Fill::absent: break;
    }
  }
  return x;
}

static void round_values(const Case& c, Values& values) {
  double cell = 0;
  for (size_t i = 0; i < c.in.size(); ++i)
    for (double& x : values[i]) {
      store_element(&cell, c.in[i].dtype, 0, x);
      x = load_element(&cell, c.in[i].dtype, 0);
    }
}

Values make_values(const Case& c) {
  Values values;
  for (size_t i = 0; i < c.in.size(); ++i) values.push_back(fill_arg(c, c.in[i], i));
  round_values(c, values);
  if (c.complete) {
    c.complete(values);
    round_values(c, values);
  }
  return values;
}

const Device& cpu() {
  static const Device d = this_cpu(2);
  return d;
}

std::vector<const Kernel*> kernels_for(const std::string& op, const Device& device) {
  std::vector<const Kernel*> found;
  for (const Kernel& k : kernels_of(device.kind))
    if (k.op == op) found.push_back(&k);
  return found;
}

const Kernel& reference_kernel(const std::string& op) {
  for (const Kernel* k : kernels_for(op, cpu()))
    if (k->name == "cpu." + op + ".reference") return *k;
  fail_internal("no reference kernel for '" + op + "'");
}

void run_reference(const Program& program, const Memory& memory) {
  for (const Instr& i : program.code) launch(reference_kernel(i.op->name), cpu(), program, i, memory);
}

Values reference_outputs(const Case& c, const Values& in) {
  Single s(c);
  Memory memory(s.program);
  s.fill(memory, in);
  run_reference(s.program, memory);
  Values out;
  for (ValueId v : s.instr().out) out.push_back(memory.read(v));
  return out;
}

std::vector<double> joined(const std::vector<double>& low, const std::vector<double>& high) {
  std::vector<double> x;
  for (size_t i = 0; i < low.size(); ++i) x.push_back(join(to_bfloat16(float(high[i])), uint16_t(low[i])));
  return x;
}

static constexpr double infinity = std::numeric_limits<double>::infinity();

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (a[i] == b[i] && std::isinf(b[i])) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return infinity;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

double worst_element(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, norm = 0, count = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(b[i])) continue;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    norm += b[i] * b[i], count += 1;
  }
  return worst == 0 ? 0 : worst / std::sqrt(norm / count);
}

std::string identifier(const std::string& text) {
  std::string s;
  for (char ch : text) s += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return s;
}

}  // namespace crest::test
