// Facts about collectives outside their definition, for passes, kernels and checks.
#pragma once
#include <string>
#include <vector>

#include "ops/index.h"
#include "program/program.h"

namespace crest {

// Elements from the first tensor of an all_reduce with attribute `flat` to the end of the last:
// with the padding between them, one collective.
int64_t flat_elements(const Program& program, const Instr& instr);
bool is_flat(const Instr& instr);
// reduce_scatter: whether the sum is added to an operand, in place.
inline bool adds_up(const Instr& instr) {
  return instr.in.size() > in::reduce_scatter::acc && instr.in[in::reduce_scatter::acc] != no_value;
}
// reduce_scatter: elements [begin, end) of x between tensors. They may hold anything and are sent
// as zeros. Attribute `gaps`, "begin:end,begin:end".
struct Padding {
  int64_t begin, end;
};
std::vector<Padding> padding_of(const Instr& instr);
std::string padding_text(const std::vector<Padding>& padding);
// send and receive: the attributes, and whether a received tensor is added to an operand, in place.
Attrs send_attrs(int to);
Attrs receive_attrs(const Value& like, int from);
inline bool adds_received(const Instr& instr) {
  return instr.in.size() > in::receive::acc && instr.in[in::receive::acc] != no_value;
}
// receive: bytes of memory for an addend; 0: the tensor arrives in place.
size_t received_bytes(const Program& program, const Instr& instr);
// gather_piece and scatter_piece: the partners of the rank in this place along the axes. It gathers
// from the rank `piece` places further, and sends addends there.
struct PieceExchange {
  int to, from;
};
PieceExchange piece_exchange(const Instr& instr, int place);
// Bytes of the 16-bit copies sent by an all_reduce; 0 if it sends its own memory.
size_t wire_bytes(const Program& program, const Instr& instr);

}  // namespace crest
