#include <fmt/format.h>

#include <cmath>

#include "program/op.h"
#include "program/text.h"

namespace crest {

namespace {

std::string type_text(const Program& p, ValueId id) {
  const Value& v = p.at(id);
  std::string t = fmt::format("{}[{}]", name(v.dtype), v.shape.text());
  if (v.role != Role::activation) t += fmt::format(" {}", name(v.role));
  if (v.lifetime != Lifetime::micro_step) t += fmt::format(" {}", name(v.lifetime));
  if (v.space != MemorySpace::device) t += fmt::format(" {}", name(v.space));
  for (size_t a = 0; a < axis_count; ++a)
    if (Placement at = v.placement[a]; !at.replicated()) t += fmt::format(" {}={}", name(Axis(a)), text(at));
  if (v.layout.storage != id) t += fmt::format(" in %{}+{}", p.at(v.layout.storage).name, v.layout.offset);
  if (v.layout.pieces) t += fmt::format(" piece({},{})", v.layout.piece, v.layout.pieces);
  if (!v.contiguous()) t += fmt::format(" strides({})", v.layout.strides.text());
  return t;
}

std::string number_text(double x) {
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  std::string t = fmt::format("{}", x);
  return t.find_first_of(".en") == std::string::npos ? t + ".0" : t;
}

std::string attr_text(const AttrValue& v) {
  if (auto* i = std::get_if<int64_t>(&v)) return std::to_string(*i);
  if (auto* d = std::get_if<double>(&v)) return number_text(*d);
  return fmt::format("\"{}\"", std::get<std::string>(v));
}

std::string attrs_text(const Attrs& attrs) {
  std::string t;
  for (auto& e : attrs.entries()) t += fmt::format("{}{}={}", t.empty() ? "" : ", ", e.key, attr_text(e.value));
  return "{" + t + "}";
}

std::string name_list(const Program& p, const std::vector<ValueId>& ids) {
  std::string t;
  for (ValueId id : ids) t += (t.empty() ? "" : ", ") + (id == no_value ? std::string("_") : "%" + p.at(id).name);
  return t;
}

void print_into(std::string& out, const Program& p, const PrintOptions& options, const std::string& indent) {
  if (!p.properties.entries().empty()) out += fmt::format("{}properties {}\n", indent, attrs_text(p.properties));
  for (auto& q : p.params)
    out += fmt::format("{}param %{} [{}] init({}, {}){}{}{}{}{}{}\n", indent, p.at(q.value).name, q.shape.text(),
                       number_text(q.init_mean), number_text(q.init_std), q.uniform ? " uniform" : "",
                       q.decay ? " decay" : "", q.frozen ? " frozen" : "",
                       q.lr_group ? fmt::format(" lr({}, {})", q.lr_group, number_text(q.lr_factor)) : "",
                       q.borrowed ? " borrowed"
                       : q.lent   ? " lent"
                                  : "",
                       q.chunk ? fmt::format(" chunk({})", q.chunk) : "");
  std::vector<int> producer = p.producers();
  for (bool owner : {true, false})  // storages before the values inside them
    for (size_t v = 0; v < p.values.size(); ++v)
      if (producer[v] < 0 && (p.values[v].layout.storage == ValueId(v)) == owner)
        out += fmt::format("{}value %{} {}\n", indent, p.values[v].name, type_text(p, ValueId(v)));
  if (!p.inputs.empty()) out += fmt::format("{}inputs {}\n", indent, name_list(p, p.inputs));
  for (size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    out += indent;
    for (size_t o = 0; o < instr.out.size(); ++o)
      out += fmt::format("{}%{} {}", o ? ", " : "", p.at(instr.out[o]).name, type_text(p, instr.out[o]));
    out += fmt::format(" = {}({})", instr.op->name, name_list(p, instr.in));
    if (!instr.attrs.entries().empty()) out += " " + attrs_text(instr.attrs);
    out += fmt::format(" {} {} @{}", name(instr.phase), name(instr.stream), instr.origin.text());
    if (instr.body) out += " body {";
    if (options.comment) out += "  # " + options.comment(p, int(i));
    out += "\n";
    if (instr.body) {
      print_into(out, *instr.body, {}, indent + "  ");
      out += indent + "}\n";
    }
  }
  if (!p.outputs.empty()) out += fmt::format("{}outputs {}\n", indent, name_list(p, p.outputs));
}

}  // namespace

std::string print(const Program& program, const PrintOptions& options) {
  std::string out = fmt::format("program {}\n", program.name);
  print_into(out, program, options, "");
  return out;
}

}  // namespace crest
