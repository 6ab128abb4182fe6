// Setting --packing: rows have several whole documents. Positions restart at each document, and
// attention stays inside it.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

bool packs_documents(const Recipe& recipe) {
  return PassContext{recipe, ProgramKind::train}.setting("packing") == "documents";
}

// Positions within documents become an input i32[batch, seq]. Learned positions and RoPE use them,
// and attention derives the start of each document from them.
void pack_documents(Program& program, const PassContext& context) {
  if (!packs_documents(context.recipe)) return;
  bool rows = context.kind == ProgramKind::train || context.kind == ProgramKind::validation;
  if (!rows) return;
  Rewriter w(program);
  const Shape tokens = program.at(program.inputs[0]).shape;
  ValueId positions = Builder(program).declare("positions", DType::i32, tokens, Role::input, Lifetime::micro_step);
  program.inputs.push_back(positions);
  for (auto& instr : w.old) {
    Instr with_positions = instr;
    const int place = is(instr, "attention")      ? int(in::attention::positions)
                      : is(instr, "rope")         ? int(in::rope::positions)
                      : is(instr, "add_position") ? int(in::add_position::position)
                                                  : -1;
    if (place >= 0) {
      with_positions.in.resize(size_t(place) + 1, no_value);  // scalars may be absent
      with_positions.in[size_t(place)] = positions;
    }
    w.keep(std::move(with_positions));
  }
  w.finish();
}

const std::vector<Setting>& packing_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "packing",
                    .group = "Model and batch",
                    .help = "content of a row: a window of the text, regardless of documents (stream), or whole "
                            "documents, each attending only to itself (documents)",
                    .default_value = "stream",
                    .choices = {"stream", "documents"},
                    .common = true,
                    .effects = {{Effect::work, Effect::attention}}})};
  return rows;
}

}  // namespace crest
