// Checks and small types that the rules of several operations share. Failed checks throw through Infer::reject, so the
// message names the operation, the input and what was expected.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "program/op.h"

namespace crest::rules {

// Between `least` and `most` inputs; the first `least` are present.
void inputs(const Infer& c, size_t least, size_t most);
// Every present input is contiguous, but for those in `views`.
void contiguous(const Infer& c, std::initializer_list<size_t> views = {});
void floating(const Infer& c, size_t i);
void dtype(const Infer& c, size_t i, DType expected);
void rank(const Infer& c, size_t i, int expected);
void at_least_rank(const Infer& c, size_t i, int expected);
void shape(const Infer& c, size_t i, const Shape& expected);
// Positions of tokens in their documents, for the rows and columns of a [B,T,..]: i32[B,T] (docs/ops.md).
void positions(const Infer& c, size_t i, const Shape& of);
// The value that holds core/scalars.h: u8[sizeof(Scalars)].
void scalars(const Infer& c, size_t i);

// An attribute that must be there, at least `least`.
int64_t integer(const Infer& c, std::string_view key, int64_t least);
double number(const Infer& c, std::string_view key);
// 0 or 1, 0 when absent unless told otherwise.
bool flag(const Infer& c, std::string_view key, bool otherwise = false);

// Statistics of rows and losses are f32; f64 when the oracle computes in f64.
inline DType stat(DType of) { return of == DType::f64 ? DType::f64 : DType::f32; }
// dtype of a parameter gradient: attribute `dtype`, else as statistics.
inline DType gradient(const Infer& c, DType of) { return c.dtype_attr(stat(of)); }
// Output that is fresh memory, or the accumulator input `acc` updated in place when it is present.
void out_sum(Infer& c, size_t acc, DType t, const Shape& s);

// heads, kv_heads and head_dim of an interleaved qkv[B,T,W] given as input i.
struct Heads {
  int64_t batch, seq, heads, kv_heads, head_dim;
};
Heads heads(const Infer& c, size_t i, int64_t least_kv_heads = 1);

}  // namespace crest::rules
