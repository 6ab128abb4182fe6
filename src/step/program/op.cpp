#include "program/op.h"

#include <fmt/format.h>

#include <unordered_map>

#include "core/error.h"
#include "core/text.h"

namespace crest {

std::string_view name(OpClass c) {
  static constexpr std::string_view n[] = {"contraction", "attention", "normalization", "elementwise",   "embedding",
                                           "loss",        "reduction", "optimizer",     "communication", "movement"};
  return n[size_t(c)];
}

std::string operand_name(std::string_view names, size_t i) {
  std::vector<std::string> list = split(names, ',');
  for (auto& name : list) name.erase(0, name.find_first_not_of(' '));
  return i < list.size() ? list[i] : fmt::format("{} {}", list.back(), i);
}

const Value& Infer::in(size_t i) const {
  if (!has(i)) reject(fmt::format("input {} is missing", operand_name(instr_.op->inputs, i)));
  return program_.at(instr_.in[i]);
}

DType Infer::dtype_attr(DType otherwise) const {
  if (!attrs().has("dtype")) return otherwise;
  auto t = parse_dtype(attrs().text("dtype"));
  if (!t) reject("attribute dtype is '" + attrs().text("dtype") + "', which is not an element type");
  return *t;
}

void Infer::out(DType dtype, const Shape& shape) { outs.push_back({dtype, shape, -1, false, 0, {}}); }

void Infer::out_in_place(size_t i) {
  const Value& v = in(i);
  outs.push_back({v.dtype, v.shape, int(i), true, 0, v.layout.strides});
}

void Infer::out_view(size_t i, int64_t offset, const Shape& shape, const Shape& strides) {
  outs.push_back({in(i).dtype, shape, int(i), false, offset, strides});
}

void Infer::out_piece(size_t i, int piece, int pieces) {
  const Shape& of = in(i).shape;
  const Shape rows = {of.rows() / pieces, of.back()};
  out_view(i, piece * rows.numel(), rows, rows.contiguous_strides());
  outs.back().pieces = pieces, outs.back().piece = piece;
}

void Infer::check(bool ok, std::string_view what) const {
  if (!ok) reject(std::string(what));
}

void Infer::same_shape(size_t i, size_t j) const {
  if (!(in(i).shape == in(j).shape))
    reject(fmt::format("inputs {} and {} must have one shape, not [{}] and [{}]", operand_name(instr_.op->inputs, i),
                       operand_name(instr_.op->inputs, j), in(i).shape.text(), in(j).shape.text()));
}

void Infer::same_dtype(size_t i, size_t j) const {
  if (in(i).dtype != in(j).dtype)
    reject(fmt::format("inputs {} and {} must have one dtype, not {} and {}", operand_name(instr_.op->inputs, i),
                       operand_name(instr_.op->inputs, j), name(in(i).dtype), name(in(j).dtype)));
}

void Infer::reject(const std::string& why) const {
  std::string inputs;
  for (size_t i = 0; i < instr_.in.size(); ++i)
    inputs += (i ? ", " : "") +
              (has(i) ? fmt::format("%{} {}[{}]", program_.at(instr_.in[i]).name, name(program_.at(instr_.in[i]).dtype),
                                    program_.at(instr_.in[i]).shape.text())
                      : std::string("_"));
  fail_internal(fmt::format("{}: {}", instr_.op->name, why), fmt::format("{}({})", instr_.op->name, inputs));
}

const OpDef* find_op(std::string_view wanted) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const OpDef*> m;
    for (const OpDef* o : all_ops()) m.emplace(o->name, o);
    return m;
  }();
  auto it = index.find(wanted);
  return it == index.end() ? nullptr : it->second;
}

const OpDef& op(std::string_view wanted) {
  const OpDef* o = find_op(wanted);
  if (!o) fail_internal(fmt::format("unknown operation '{}'", wanted));
  return *o;
}

Cost traffic(const Program& p, const Instr& instr) {
  Cost c;
  for (ValueId v : instr.in)
    if (v != no_value) c.bytes_read += double(p.at(v).bytes());
  for (ValueId v : instr.out) c.bytes_written += double(p.at(v).bytes());
  return c;
}

Cost traffic_with_flops(const Program& p, const Instr& instr, double flops) {
  Cost c = traffic(p, instr);
  c.flops = flops;
  return c;
}

}  // namespace crest
