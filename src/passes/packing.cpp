// Lever --packing: whole documents share a row; positions restart at each, and attention stays
// within it.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

bool packs_documents(const Recipe& recipe) {
  return PassContext{recipe, ProgramKind::train}.lever("packing") == "documents";
}

// Positions within documents become an input i32[batch, seq]: learned positions are looked up like
// tokens, RoPE rotates by them, and attention uses them to find where a document began.
void pack_documents(Program& program, const PassContext& context) {
  if (!packs_documents(context.recipe)) return;
  bool rows = context.kind == ProgramKind::train || context.kind == ProgramKind::validation;
  if (!rows) return;
  Rewriter w(program);
  const Shape tokens = program.at(program.inputs[0]).shape;
  ValueId positions = Builder(program).declare("positions", DType::i32, tokens, Role::input, Lifetime::micro_step);
  program.inputs.push_back(positions);
  for (auto& instr : w.old) {
    if (is(instr, "attention") || is(instr, "rope")) {
      Instr with_positions = instr;
      // Scalars may be absent.
      with_positions.in.resize(
          is(with_positions, "rope") ? size_t(in::rope::positions) : size_t(in::attention::positions), no_value);
      with_positions.in.push_back(positions);
      w.keep(std::move(with_positions));
    } else if (is(instr, "add_position")) {
      Builder& b = w.build(instr);
      ValueId rows_of_table = b.emit1("embedding", {positions, w.now(instr.in[in::add_position::table])});
      w.replace(instr.out[out::add_position::y], b.emit1("add", {w.now(instr.in[in::add_position::x]), rows_of_table}));
    } else {
      w.keep(instr);
    }
  }
  w.finish();
}

const std::vector<Setting>& packing_settings() {
  static const std::vector<Setting> rows = {
      lever({.name = "packing",
             .group = "Model and batch",
             .help = "how rows are filled: windows of the text, regardless of documents (stream), or packed whole "
                     "documents that do not attend to each other (documents)",
             .otherwise = "stream",
             .choices = {"stream", "documents"},
             .effects = {{Effect::work, Effect::attention}}})};
  return rows;
}

}  // namespace crest
