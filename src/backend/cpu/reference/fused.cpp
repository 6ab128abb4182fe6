// Interprets the body of a fused instruction element by element; intermediates stay in double.
#include <string_view>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"
#include "program/op.h"

namespace crest::reference {

void fused(const KernelCall& c) {
  const Program& body = *c.instr.body;
  struct Step {
    Pointwise f = nullptr;  // null: a column sum
    double value = 0;
    std::vector<double> sums;
  };
  std::vector<Step> steps;
  int64_t numel = body.at(body.code[0].in[0]).numel();
  for (const Instr& i : body.code) {
    if (std::string_view(i.op->name) == "bias_grad") {
      std::vector<double> sums(size_t(body.at(i.out[out::bias_grad::db]).numel()), 0.0);
      steps.push_back({nullptr, 0, std::move(sums)});
    } else {
      steps.push_back({pointwise_function(i.op->name), i.attrs.number("value", 0.0), {}});
    }
  }
  std::vector<double> value(body.values.size());
  std::vector<bool> is_sum(body.values.size());
  for (size_t k = 0; k < steps.size(); ++k) is_sum[size_t(body.code[k].out[0])] = !steps[k].f;
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
      else
        steps[k].sums[size_t(e) % steps[k].sums.size()] += x[0];
    }
    for (size_t o = 0; o < body.outputs.size(); ++o)
      if (!is_sum[size_t(body.outputs[o])]) output(c, o).set(e, value[size_t(body.outputs[o])]);
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    if (steps[k].f) continue;
    const Instr& i = body.code[k];
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

}  // namespace crest::reference
