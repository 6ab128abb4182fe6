// Checks and small types shared by the rules of several operations. Failed checks throw through
// Infer::reject, so the message names the operation, the input and the expectation.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "program/op.h"

namespace crest::rules {

// There are between `least` and `most` inputs, and the first `least` are present.
void inputs(const Infer& c, size_t least, size_t most);
// Every present input is contiguous, except inputs in `views` and rows with a pitch where the
// operation accepts them (OpDef::pitched_in).
void contiguous(const Infer& c, std::initializer_list<size_t> views = {});
void floating(const Infer& c, size_t i);
void dtype(const Infer& c, size_t i, DType expected);
void rank(const Infer& c, size_t i, int expected);
void at_least_rank(const Infer& c, size_t i, int expected);
void shape(const Infer& c, size_t i, const Shape& expected);
// Positions of tokens within their documents, for the rows and columns of a [B,T,..]: i32[B,T]
// (docs/reference/ops.md).
void positions(const Infer& c, size_t i, const Shape& of);
// The value of core/scalars.h: u8[sizeof(Scalars)].
void scalars(const Infer& c, size_t i);
// Attributes `p` and `rng_id` of dropout, and the scalars at input i. Whether there is dropout at
// all, where it is part of another operation: all of these or none.
void dropout(const Infer& c, size_t i);
bool drops(const Infer& c, size_t i);

// A required attribute of at least `least`.
int64_t integer(const Infer& c, std::string_view key, int64_t least);
double number(const Infer& c, std::string_view key);
// The optional attribute `window` of causal attention: the number of keys visible to a query,
// including its own; 0: absent, all.
int64_t window(const Infer& c);
// 0 or 1; the default is 0.
bool flag(const Infer& c, std::string_view key, bool otherwise = false);

// The dtype of row statistics and losses: f32, or f64 if the oracle computes in f64.
inline DType stat(DType of) { return of == DType::f64 ? DType::f64 : DType::f32; }
// The dtype of a parameter gradient: attribute `dtype`, else the dtype of statistics.
inline DType gradient(const Infer& c, DType of) { return c.dtype_attr(stat(of)); }
// An output in new memory, or the accumulator input `acc` updated in place if it is present.
void out_sum(Infer& c, size_t acc, DType t, const Shape& s);

// heads, kv_heads and head_dim of an interleaved qkv[B,T,W] at input i.
struct Heads {
  int64_t batch, seq, heads, kv_heads, head_dim;
};
Heads heads(const Infer& c, size_t i, int64_t least_kv_heads = 1);

}  // namespace crest::rules
