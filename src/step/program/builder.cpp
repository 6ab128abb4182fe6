#include "program/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

Builder::Builder(Program& program) : program_(&program) {}

Names& Builder::names() {
  if (named_) return names_;
  named_ = true;
  names_.reserve(program_->values.size() + program_->values.size() / 2);
  for (auto& v : program_->values) names_.add(v.name);
  return names_;
}

ValueId Builder::declare(std::string_view wanted, DType dtype, const Shape& shape, Role role, Lifetime lifetime) {
  if (!names().add(wanted)) fail_internal(fmt::format("value '{}' declared twice", wanted));
  auto id = ValueId(program_->values.size());
  program_->values.push_back({std::string(wanted), dtype, shape, {id, 0, shape.contiguous_strides()}, role, lifetime});
  return id;
}

Layout layout_of(const Program& program, const Instr& instr, const Infer::Out& out, ValueId self) {
  if (out.alias < 0) return {self, 0, out.shape.contiguous_strides()};
  const Layout& base = program.at(instr.in[size_t(out.alias)]).layout;
  Layout l = {base.storage, base.offset + out.offset, out.strides, base.pieces, base.piece};
  if (out.pieces) l.pieces = out.pieces, l.piece = out.piece;
  // Its offset on other ranks follows from its size (Value::offset_on).
  if (base.pieces && !out.pieces && out.shape.numel() != program.at(instr.in[size_t(out.alias)]).numel())
    fail_internal("a view of a part of a piece has no place on other ranks");
  return l;
}

std::vector<ValueId> Builder::append(Instr instr) {
  Infer infer(*program_, instr);
  instr.op->infer(infer);
  instr.out.clear();
  std::string base =
      instr.origin.empty() ? instr.op->name : fmt::format("{}.{}", instr.origin.scopes().front(), instr.op->name);
  for (size_t i = 0; i < infer.outs.size(); ++i) {
    auto& o = infer.outs[i];
    auto id = ValueId(program_->values.size());
    Value v{names().add_unique(i ? fmt::format("{}:{}", base, i) : base), o.dtype, o.shape,
            layout_of(*program_, instr, o, id)};
    if (o.alias >= 0) v.space = program_->at(instr.in[size_t(o.alias)]).space;
    const auto& host = instr.op->host_out;
    if (o.alias < 0 && std::find(host.begin(), host.end(), int(i)) != host.end()) v.space = MemorySpace::host;
    if (o.alias >= 0 && o.consumes) {
      v.role = program_->at(instr.in[size_t(o.alias)]).role;
      v.lifetime = program_->at(instr.in[size_t(o.alias)]).lifetime;
    }
    program_->values.push_back(std::move(v));
    instr.out.push_back(id);
  }
  program_->code.push_back(std::move(instr));
  return program_->code.back().out;
}

std::vector<ValueId> Builder::emit(std::string_view op_name, std::vector<ValueId> in, Attrs attrs) {
  Instr instr;
  instr.op = &op(op_name);
  instr.in = std::move(in);
  instr.attrs = std::move(attrs);
  instr.phase = phase, instr.stream = stream, instr.origin = origin;
  return append(std::move(instr));
}

ValueId Builder::emit1(std::string_view op_name, std::vector<ValueId> in, Attrs attrs) {
  auto out = emit(op_name, std::move(in), std::move(attrs));
  if (out.empty()) fail_internal(fmt::format("{} has no output", op_name));
  return out[0];
}

void reinfer(Program& program, const Instr& instr) {
  Infer infer(program, instr);
  instr.op->infer(infer);
  if (infer.outs.size() != instr.out.size())
    fail_internal(fmt::format("{} changed its number of outputs", instr.op->name));
  for (size_t i = 0; i < instr.out.size(); ++i) {
    Value& v = program.at(instr.out[i]);
    v.dtype = infer.outs[i].dtype;
    v.shape = infer.outs[i].shape;
    v.layout = layout_of(program, instr, infer.outs[i], instr.out[i]);
  }
}

void reinfer(Program& program) {
  for (auto& instr : program.code) reinfer(program, instr);
}

}  // namespace crest
