// The matrix products of a step, and their tiles on a GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// The part of a result that one thread block computes.
struct ProductTile {
  int64_t m = 0, n = 0;      // 0: unknown
  bool divides_sum = false;  // several blocks share a tile's sum, so every wave is full
  std::string source;        // where the tile is from
};

// c[m, n] = a[m, k] b[k, n], for `batches` pairs of matrices.
struct StepProduct {
  size_t row = 0;     // in step_rows(session).instrs
  std::string place;  // "h.*.mlp.fc"
  std::string op, kernel, arithmetic;
  int64_t m = 0, n = 0, k = 0, batches = 1, calls = 1;
  int64_t element = 4;  // bytes of one operand element
  bool tensor_cores = false;
  ProductTile tile;

  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batches * calls); }
  int64_t tiles() const;  // 0: unknown
  // FLOPs of whole tiles / FLOPs of the product, at least 1.
  double tile_padding() const;
  // Rounds in which `multiprocessors` compute one tile each.
  double waves(int64_t multiprocessors) const;
  // Time of whole rounds / time without idle multiprocessors, at least 1.
  double wave_padding(int64_t multiprocessors) const;
};

// Its origin without the layer's number: "h.3.mlp.fc" -> "h.*.mlp.fc".
std::string place_of(const Instr& instr);

// The products of the session's step, or of its forward pass if it has no step.
std::vector<StepProduct> products_of(const CompiledSession& session);

}  // namespace crest
