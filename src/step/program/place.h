// How ranks compute an operation in parts. A rule names the dimensions of the operands, as einsum
// does: "..K, NK -> ..N; .. N K+" is the rule of linear(x, w). Any dimension listed after the
// semicolon may be cut along an axis of the mesh. Operands with that dimension are then shards, all
// others are replicated. A + marks a sum: outputs without this dimension are partial.
//
//   A..Z  a dimension            ..  all dimensions before the named ones (rows)
//   *     rows in one dimension  _   all that follow; never cut
//   1     of size 1              -   a replicated operand (weights in one piece, scalars)
//   ~     an operand with its own value on each rank (scales)
//   @     after a letter of the cut: only along the instruction's attribute `axes`. The kernel uses the
//         index of its part, so along these axes the dimension must be cut
//   %     after T in the cut: only in chunks (Placement::chunks), and only along the instruction's
//         attribute `axes`, because the kernel uses the places of its chunks
//   =     after a letter of the cut: outputs without this dimension are the same on all ranks
//   a..z  the dimension of the same capital letter, for queries, keys and values side by side: a
//         part has a part of each of the three (Placement::heads)
//
// A shard in chunks cuts T, or the last dimension of `..`, or `*`: tokens of whole sequences.
//
// The last operand of a list is repeated for all further operands. `linear` after the semicolon:
// the operation of partial inputs gives partial outputs (OP(a) + OP(b) = OP(a + b)).
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

// Infers the placements of an instruction's outputs along an axis from its input placements (any
// placement for an absent input). Returns "" and fills `out`, or the reason why the inputs do not
// fit.
std::string place(const Program& program, const Instr& instr, Axis axis, const std::vector<Placement>& in,
                  std::vector<Placement>& out);

// All input placements along an axis allowed by the rule. Tests compute the parts of each and
// compare.
std::vector<std::vector<Placement>> cuts_of(const Program& program, const Instr& instr, Axis axis);

}  // namespace crest
