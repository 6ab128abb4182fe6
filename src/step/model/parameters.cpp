#include "model/parameters.h"

#include "model/gpt.h"
#include "program/op.h"

namespace crest {

std::vector<Param> parameters_of(const ModelConfig& config) {
  return build_model(config, {.kind = ProgramKind::update}).params;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t n = 0;
  for (auto& p : parameters_of(config)) n += p.shape.numel();
  return n;
}

bool is_adapter(const Param& p) { return p.name.ends_with(lora_a) || p.name.ends_with(lora_b); }

int64_t trained_parameter_count(const ModelConfig& config) {
  int64_t n = 0;
  for (auto& p : parameters_of(config)) n += p.frozen ? 0 : p.shape.numel();
  return n;
}

// Elements of all matrices read by one class of instructions in a forward pass.
static int64_t matrix_elements(const ModelConfig& config, OpClass read_by) {
  const Program forward = build_model(config, {.kind = ProgramKind::validation});
  int64_t n = 0;
  for (auto& instr : forward.code) {
    if (instr.op->op_class != read_by) continue;
    for (ValueId v : instr.in)
      if (v != no_value && forward.at(v).role == Role::weight && forward.at(v).shape.rank() == 2)
        n += forward.at(v).numel();
  }
  return n;
}

int64_t matmul_parameter_count(const ModelConfig& config) { return matrix_elements(config, OpClass::contraction); }
int64_t embedding_parameter_count(const ModelConfig& config) { return matrix_elements(config, OpClass::embedding); }

static double flops_with_all_gradients(const ModelConfig& c, int64_t seq) {
  return 6.0 * double(matmul_parameter_count(c)) +
         12.0 * double(c.layers) * double(c.heads * c.head_dim) * c.keys_per_token(seq);
}

double flops_per_token(const ModelConfig& c, int64_t seq) {
  const double all = flops_with_all_gradients(c, seq);
  if (c.lora.rank == 0) return all;
  return all - 2.0 * double(matmul_parameter_count(c) - trained_parameter_count(c));
}

double forward_flops_per_token(const ModelConfig& c, int64_t seq) { return flops_with_all_gradients(c, seq) / 3; }

}  // namespace crest
