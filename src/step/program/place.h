// The rule by which an operation is computed in parts. It names the dimensions of the operands, as
// einsum does: "..K, NK -> ..N; .. N K+" is the rule of linear(x, w). A dimension after the
// semicolon may be cut along an axis of the mesh: every operand that has it is then a shard, all
// others are replicated. Outputs that lack a dimension marked + are partial: it is summed over.
//
//   A..Z  a dimension            ..  all dimensions before the named ones (rows)
//   *     rows in one dimension  _   all that follow; never cut
//   1     of size 1              -   an operand that is replicated (weights in one piece, scalars)
//   ~     an operand of which each rank may have its own (scales)
//
// The last operand of a list stands for all that follow. `linear` after the semicolon: the
// operation of partial inputs gives partial outputs (OP(a) + OP(b) = OP(a + b)).
#pragma once
#include <string>
#include <vector>

#include "program/op.h"
#include "program/placement.h"

namespace crest {

// For OpDef::place, where all instructions of an operation have one rule: cut<"..K -> ..K; ..">.
template <size_t n>
struct RuleText {
  char text[n];
  constexpr RuleText(const char (&s)[n]) {
    for (size_t i = 0; i < n; ++i) text[i] = s[i];
  }
};
template <RuleText rule>
const char* cut(const Program&, const Instr&) {
  return rule.text;
}

// What the ranks along one axis have of the outputs of an instruction, given what they have of its
// inputs (of absent ones anything). Returns what does not fit, or "" and the placements in `out`.
std::string place(const Program& program, const Instr& instr, const std::vector<Placement>& in,
                  std::vector<Placement>& out);

// Every way in which the rule lets the inputs be cut, or be partial: for tests, which compute the
// parts and compare.
std::vector<std::vector<Placement>> cuts_of(const Program& program, const Instr& instr);

}  // namespace crest
