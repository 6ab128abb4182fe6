// An operation without a device: type inference, placement, cost, gradient, aliasing. Plain data
// with function pointers. docs/reference/ops.md defines every operation exactly; the index is
// ops/index.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace crest {

class Builder;

// The groups in profiles and reports.
enum class OpClass : uint8_t {
  contraction,
  attention,
  normalization,
  elementwise,
  embedding,
  loss,
  reduction,
  optimizer,
  communication,
  movement
};
std::string_view name(OpClass);

// Type inference for one instruction: reads input types and attributes, and declares the outputs in
// order.
class Infer {
 public:
  Infer(const Program& program, const Instr& instr) : program_(program), instr_(instr) {}

  struct Out {
    DType dtype;
    Shape shape;
    int alias = -1;             // the output shares the storage of this input; -1: of none
    bool consumes = false;      // in place: the input's value is gone afterwards (a new version); otherwise a view
    int64_t offset = 0;         // of a view, in elements of its dtype, relative to the input
    Shape strides;              // of a view; for an in-place output, the input's
    int pieces = 0, piece = 0;  // of a view: which piece of the input's rows (Layout)
  };

  const OpDef& op() const { return *instr_.op; }
  size_t inputs() const { return instr_.in.size(); }
  bool has(size_t i) const { return i < instr_.in.size() && instr_.in[i] != no_value; }
  const Value& in(size_t i) const;  // throws an error with the operand's name if the input is absent
  const Attrs& attrs() const { return instr_.attrs; }
  const Program* body() const { return instr_.body.get(); }
  // Attribute `dtype` ("f32"), or the given one if absent.
  DType dtype_attr(DType otherwise) const;

  void out(DType dtype, const Shape& shape);                  // new memory
  void out_like(size_t i) { out(in(i).dtype, in(i).shape); }  // new memory, type of input i
  void out_in_place(size_t i);                                // next version of input i
  void out_view(size_t i, int64_t offset, const Shape& shape, const Shape& strides);
  // Piece `piece` of the rows of input i, as [rows,..].
  void out_piece(size_t i, int piece, int pieces);

  // Checks. The message completes the sentence "OP: ...".
  void check(bool ok, std::string_view what) const;
  void same_shape(size_t i, size_t j) const;
  void same_dtype(size_t i, size_t j) const;
  [[noreturn]] void reject(const std::string& why) const;

  std::vector<Out> outs;

 private:
  const Program& program_;
  const Instr& instr_;
};

// Arithmetic and memory traffic of one instruction. Bytes count each input read once and each
// output written once.
struct Cost {
  double flops = 0;
  double bytes_read = 0, bytes_written = 0;
  double bytes() const { return bytes_read + bytes_written; }
};

// Differentiation of one instruction. The autograd pass sums the contributions to an activation
// gradient in order. Weight gradients accumulate in place: a rule passes acc(i) as the optional
// accumulator input of the gradient operation, and passes its result to set(i).
class Grad {
 public:
  virtual ~Grad() = default;
  virtual Builder& builder() = 0;                    // emits in phase backward, with the instruction's origin
  virtual const Instr& instr() const = 0;            // a copy of the forward instruction
  virtual ValueId dout(size_t i) const = 0;          // gradient of output i; no_value if nothing depends on it
  virtual bool needs(size_t i) const = 0;            // whether input i leads to a parameter
  virtual void add(size_t i, ValueId gradient) = 0;  // contribution to the gradient of an activation input
  virtual ValueId acc(size_t i) const = 0;  // weight input: gradient so far; no_value for the first contribution
  virtual void set(size_t i, ValueId gradient) = 0;  // weight input: gradient including this contribution
  virtual DType weight_grad_dtype() const = 0;       // dtype of parameter gradients

  ValueId in(size_t i) const { return i < instr().in.size() ? instr().in[i] : no_value; }
  ValueId out(size_t i) const { return instr().out[i]; }
  const Attrs& attrs() const { return instr().attrs; }
};

// How a collective of activations changes the placement of its first input along its axes
// (axes_of). Along all other axes OpDef::place decides. Instead of piece 0, the piece of attribute
// `piece`. Placement::chunks stand for chunks of any size, two in each rank's part of a sequence.
struct Exchange {
  Placement from, to;
  bool uses_up = false;  // the input holds nothing afterwards
};

struct OpDef {
  const char* name;
  const char *inputs, *outputs;  // names of the operands: "x, w, b" (ops/index.h)
  const char* help;              // one line: inputs -> outputs: meaning
  OpClass op_class;
  void (*infer)(Infer&);
  // How it is computed in parts (program/place.h). Null: from whole inputs only. Collectives,
  // copies and bodies have rules of their own.
  const char* (*place)(const Program&, const Instr&) = nullptr;
  std::optional<Exchange> exchange = {};
  Cost (*cost)(const Program&, const Instr&);
  void (*grad)(Grad&) = nullptr;  // null: not differentiable

  // Whether output o may overwrite the memory of input i after the last read of the input (the
  // planner decides).
  struct MayOverlay {
    int out, in;
  };
  std::vector<MayOverlay> may_overlay = {};
  // Accumulator inputs (Grad::acc): if input i is present, output o is the sum of the contribution
  // and input i, in place.
  struct Accumulator {
    int out, in;
  };
  std::vector<Accumulator> accumulators = {};
  // Inputs and outputs with an optional gap between rows (Value::pitch). All other operands are
  // contiguous, except views named by the operation itself.
  std::vector<int> pitched_in = {}, pitched_out = {};
  // Operands in host memory on every device. All other operands are in device memory. Views may be
  // in either.
  std::vector<int> host_in = {}, host_out = {};
  bool crosses_memories() const { return !host_in.empty(); }
  bool pointwise = false;     // element i of the output depends only on element i of the inputs: may join a fused body
  bool cheap = false;         // selective recompute may repeat it (norms, pointwise, attention)
  bool half_compute = false;  // under policy autocast it runs on 16-bit inputs
  bool full_precision = false;  // under policy autocast it runs on fp32 inputs (softmax, loss)
  // Optimizers: element i of every output depends only on element i of the inputs and on the step.
  // With states for fixed blocks of elements, it depends on its block. So a flat group of tensors
  // may be updated as one tensor.
  bool flat = false;
};

// All operations, in the order of their list in ops/index.cpp. It is the only symbol from a folder
// above this one. find_op returns null for an unknown name.
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);
const OpDef& op(std::string_view name);  // throws an internal error for an unknown name
// The name of operand i in OpDef::inputs or OpDef::outputs: "w"; after the last name, "g 3".
std::string operand_name(std::string_view names, size_t i);

// Helpers for costs. traffic: each present input is read once, each output written once (views move
// nothing).
Cost traffic(const Program&, const Instr&);
Cost traffic_with_flops(const Program&, const Instr&, double flops);
// `per_element` operations per element of output 0.
template <int per_element>
Cost elementwise_cost(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(per_element) * double(p.at(i.out[0]).numel()));
}

}  // namespace crest
