// Launch functions of the reference kernels, one per operation (pointwise operations share one).
#pragma once
#include "backend/backend.h"

namespace crest::reference {

void linear(const KernelCall&);
void linear_gelu(const KernelCall&);
void linear_dx(const KernelCall&);
void linear_dw(const KernelCall&);
void matmul(const KernelCall&);
void bias_grad(const KernelCall&);
void pointwise(const KernelCall&);
void dropout(const KernelCall&);
void fused(const KernelCall&);
void norm(const KernelCall&);
void add_norm(const KernelCall&);
void norm_grad(const KernelCall&);
void softmax(const KernelCall&);
void softmax_grad(const KernelCall&);
void causal_mask(const KernelCall&);
void attention(const KernelCall&);
void attention_grad(const KernelCall&);
void split_heads(const KernelCall&);
void join_heads(const KernelCall&);
void rope(const KernelCall&);
void cache_append(const KernelCall&);
void cached_attention(const KernelCall&);
void embedding(const KernelCall&);
void embedding_grad(const KernelCall&);
void take_row(const KernelCall&);
void add_position(const KernelCall&);
void position_grad(const KernelCall&);
void cross_entropy(const KernelCall&);
void cross_entropy_grad(const KernelCall&);
void cross_entropy_fused(const KernelCall&);
void sum_loss(const KernelCall&);
void grad_norm(const KernelCall&);
void adamw(const KernelCall&);
void finish_step(const KernelCall&);

}  // namespace crest::reference
