// Lever --packing: whole documents share a row; positions restart at each, and attention stays within it.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

bool packs_documents(const Recipe& recipe) {
  std::string packing = PassContext{recipe, ProgramKind::train}.lever("packing");
  const std::vector<std::string> known = {"stream", "documents"};
  if (std::find(known.begin(), known.end(), packing) == known.end())
    fail_usage("unknown packing '" + printable(packing) + "'", "--packing",
               did_you_mean(packing, known) + " Choose stream or documents.");
  return packing == "documents";
}

// Positions in documents become an input i32[batch, seq]: learned positions are looked up as tokens are, RoPE turns by
// them, and they tell attention where a document began.
void pack_documents(Program& program, const PassContext& context) {
  if (!packs_documents(context.recipe)) return;
  bool rows = context.kind == ProgramKind::train || context.kind == ProgramKind::validation;
  if (!rows) return;
  Rewriter w(program);
  const Shape tokens = program.at(program.inputs[0]).shape;
  ValueId positions = Builder(program).declare("positions", DType::i32, tokens, Role::input, Lifetime::micro);
  program.inputs.push_back(positions);
  for (auto& instr : w.old) {
    if (is(instr, "attention") || is(instr, "rope")) {
      Instr told = instr;
      told.in.resize(2, no_value);  // scalars may be absent
      told.in.push_back(positions);
      w.keep(told);
    } else if (is(instr, "add_position")) {
      Builder& b = w.build(instr);
      ValueId rows_of_table = b.emit1("embedding", {positions, w.now(instr.in[1])});
      w.replace(instr.out[0], b.emit1("add", {w.now(instr.in[0]), rows_of_table}));
    } else {
      w.keep(instr);
    }
  }
  w.finish();
}

}  // namespace crest
