// Interprets the body of a fused instruction element by element; intermediates stay in double.
// Values to quantize are rounded to their dtype first, then given to the reference of the
// quantizing operation. The body of an update runs instruction by instruction.
#include <string_view>

#include "backend/body.h"
#include "backend/cpu/reference/index.h"
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/fused.h"
#include "ops/index.h"
#include "program/op.h"

namespace crest::reference {

namespace {

void quantize_in_body(const KernelCall& c, const Program& body, const Instr& instr, const std::vector<double>& x) {
  std::vector<std::vector<double>> kept;  // not read outside; a double holds any element
  auto find = [&](ValueId v) {
    if (void* p = address_in_body(c, v)) return p;
    return static_cast<void*>(kept.emplace_back(size_t(body.at(v).numel())).data());
  };
  std::vector<void*> in, out;
  for (ValueId v : instr.in) in.push_back(find(v));
  for (ValueId v : instr.out) out.push_back(find(v));
  std::vector<double> rounded(x.size());
  Tensor values(rounded.data(), body.at(instr.in[0]));
  for (size_t i = 0; i < x.size(); ++i) values.set(int64_t(i), x[i]);
  in[0] = rounded.data();
  KernelCall call{body, instr, in.data(), out.data(), nullptr, nullptr, c.threads, c.groups, nullptr, c.device};
  if (instr.op == &op_quantize) return quantize(call);
  if (instr.op == &op_quantize_columns) return quantize_columns(call);
  if (instr.op == &op_quantize_blocks) return quantize_blocks(call);
  quantize_blocks_columns(call);
}

}  // namespace

void fused(const KernelCall& c) {
  const Program& body = *c.instr.body;
  struct Step {
    Pointwise f = nullptr;  // null: a column sum, or quantization
    double value = 0;
    std::vector<double> sums;
    std::vector<double> quantized = {};
  };
  std::vector<Step> steps;
  int64_t numel = body.at(body.code[0].in[0]).numel();
  for (const Instr& i : body.code) {
    if (std::string_view(i.op->name) == "bias_grad") {
      std::vector<double> sums(size_t(body.at(i.out[out::bias_grad::db]).numel()), 0.0);
      steps.push_back({nullptr, 0, std::move(sums)});
    } else if (quantizes(i)) {
      steps.push_back({nullptr, 0, {}, std::vector<double>(size_t(numel))});
    } else {
      steps.push_back({pointwise_function(i.op->name), i.attrs.number("value", 0.0), {}});
    }
  }
  std::vector<double> value(body.values.size());
  std::vector<bool> is_sum(body.values.size());  // or quantized
  for (size_t k = 0; k < steps.size(); ++k)
    if (!steps[k].f)
      for (ValueId v : body.code[k].out) is_sum[size_t(v)] = true;
  for (int64_t e = 0; e < numel; ++e) {
    for (size_t i = 0; i < body.inputs.size(); ++i)
      if (input(c, i).numel() == numel) value[size_t(body.inputs[i])] = input(c, i)[e];
    for (size_t k = 0; k < steps.size(); ++k) {
      const Instr& i = body.code[k];
      double x[2] = {};
      for (size_t j = 0; j < i.in.size() && j < 2; ++j)
        if (i.in[j] != no_value) x[j] = value[size_t(i.in[j])];
      if (steps[k].f)
        value[size_t(i.out[0])] = steps[k].f(x, steps[k].value);
      else if (quantizes(i))
        steps[k].quantized[size_t(e)] = x[0];
      else
        steps[k].sums[size_t(e) % steps[k].sums.size()] += x[0];
    }
    for (size_t o = 0; o < body.outputs.size(); ++o)
      if (!is_sum[size_t(body.outputs[o])]) output(c, o).set(e, value[size_t(body.outputs[o])]);
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    if (steps[k].f) continue;
    const Instr& i = body.code[k];
    if (quantizes(i)) {
      quantize_in_body(c, body, i, steps[k].quantized);
      continue;
    }
    for (size_t o = 0; o < body.outputs.size(); ++o) {
      if (body.outputs[o] != i.out[out::bias_grad::db]) continue;
      Tensor acc;
      for (size_t j = 0; j < body.inputs.size(); ++j)
        if (i.in.size() > in::bias_grad::acc && i.in[in::bias_grad::acc] == body.inputs[j]) acc = input(c, j);
      for (size_t n = 0; n < steps[k].sums.size(); ++n)
        output(c, o).set(int64_t(n), steps[k].sums[n] + so_far(acc, int64_t(n)));
    }
  }
}

void fused_update(const KernelCall& c) {
  const Program& body = *c.instr.body;
  for (const Instr& instr : body.code) {
    std::vector<void*> in, out;
    for (ValueId v : instr.in) in.push_back(v == no_value ? nullptr : address_in_body(c, v));
    for (ValueId v : instr.out) out.push_back(address_in_body(c, v));
    for (const Kernel& k : cpu_reference_kernels())
      if (std::string_view(k.op) == instr.op->name)
        k.launch({body, instr, in.data(), out.data(), nullptr, nullptr, c.threads, c.groups, nullptr, c.device});
  }
}

}  // namespace crest::reference
