// One case of an operation: input types and how they are filled, attributes, body. The same list
// serves every mode.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/scalars.h"
#include "program/program.h"

namespace crest {
class Builder;
}

namespace crest::test {

struct Arg {
  enum class Fill { normal, positive, ids, targets, positions, scalars, absent };
  Fill fill = Fill::normal;
  DType dtype = DType::f32;
  Shape shape = {};
  double deviation = 1;
  int64_t limit = 0;   // ids, targets: values below it; positions: length of documents on average
  Shape strides = {};  // rank 0: contiguous
  int64_t offset = 0;  // of a view
};

// Values of all inputs in logical row-major order; an absent input is empty, scalars are 64 bytes.
using Values = std::vector<std::vector<double>>;

struct Case {
  std::string op, name;
  std::vector<Arg> in;
  Attrs attrs = {};
  std::shared_ptr<const Program> body = nullptr;
  Scalars scalars = {};
  // Replaces inputs with a required relation to others, such as the saved statistics of a gradient.
  std::function<void(Values&)> complete = nullptr;
  std::vector<int64_t> out_pitch = {};  // by output: elements from row to row; 0 or absent: contiguous
  int rank = 0, ranks = 1;              // this rank of so many runs it, along attribute `axes`
};

// A few instructions between inputs and outputs; differentiated is the sum of the outputs times
// random weights.
struct GradCase {
  std::string name;
  std::vector<Arg> in;               // f64; with `weights`, parameters with accumulating gradients
  std::vector<size_t> weights = {};  // indices into `in`
  std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)> forward;
  bool root = false;  // cross-entropy: the rule itself sets the gradient of the output to scale * loss_scale
};

// Cases of an operation in a file of its own: `static const CaseFile file = {add_cases,
// add_grad_cases};` at its end. add_cases is called once a dtype.
struct CaseFile {
  using Cases = void (*)(std::vector<Case>&, DType);
  using GradCases = void (*)(std::vector<GradCase>&);
  Cases cases;
  GradCases grad_cases;  // null: not differentiable
  CaseFile(Cases c, GradCases g = nullptr) : cases(c), grad_cases(g) { all().push_back(this); }
  static std::vector<const CaseFile*>& all() {
    static std::vector<const CaseFile*> files;
    return files;
  }
};

// Small cases for check and support.
const std::vector<Case>& all_cases();
std::vector<GradCase> grad_cases();

// The parts of the list.
void add_contraction_cases(std::vector<Case>&, DType);
void add_pointwise_cases(std::vector<Case>&, DType);
void add_row_cases(std::vector<Case>&, DType);
void add_attention_cases(std::vector<Case>&, DType);
void add_embedding_cases(std::vector<Case>&, DType);
void add_loss_cases(std::vector<Case>&, DType);
void add_update_cases(std::vector<Case>&, DType);
// For perf: quantization of a bf16 tensor of this shape, alone or by its producer, with a scale of
// the tensor and with scales of blocks.
std::vector<Case> quantization_cases(const Shape&);

inline Arg tensor(DType t, const Shape& s, double deviation = 1) { return {Arg::Fill::normal, t, s, deviation}; }
inline Arg positive(DType t, const Shape& s) { return {Arg::Fill::positive, t, s}; }
inline Arg absent() { return {Arg::Fill::absent}; }
inline Arg ids(const Shape& s, int64_t limit) { return {Arg::Fill::ids, DType::i32, s, 1, limit}; }
inline Arg targets(const Shape& s, int64_t limit) { return {Arg::Fill::targets, DType::i32, s, 1, limit}; }
// Of tokens in their documents, [batch, tokens].
inline Arg positions(const Shape& s, int64_t length) { return {Arg::Fill::positions, DType::i32, s, 1, length}; }
// fp8's counts of saturated and vanished values, for some slots.
inline Arg counters(int64_t slots) { return {Arg::Fill::ids, DType::i64, {slots, 2}, 1, 1000}; }
inline Arg scalars_arg() { return {Arg::Fill::scalars, DType::u8, {int64_t(sizeof(Scalars))}}; }
inline Arg view(DType t, const Shape& s, const Shape& strides, int64_t offset) {
  return {Arg::Fill::normal, t, s, 1, 0, strides, offset};
}
// Rows `pitch` elements apart.
inline Arg pitched(DType t, const Shape& s, int64_t pitch, double deviation = 1) {
  return {Arg::Fill::normal, t, s, deviation, 0, s.with_back(pitch).contiguous_strides()};
}
// A matrix of a group of parameters, quantized by a fused_update.
struct GroupMatrix {
  int64_t first, rows, columns;
  bool known, transposed;  // known: its magnitude in the step before
};
enum class Masters { halves, whole };
// AdamW over a group of `numel` elements; masters of bf16 weights.
Case fused_update(const std::string& name, int64_t numel, const std::vector<GroupMatrix>& matrices, DType gradient,
                  Masters masters, bool skipped);
// The same case on a rank of three.
inline Case& on_rank(Case& c, int rank) {
  c.rank = rank, c.ranks = 3;
  return c;
}
// Scalars in the middle of a run, away from the special values 0 and 1.
Scalars some_scalars();

}  // namespace crest::test
