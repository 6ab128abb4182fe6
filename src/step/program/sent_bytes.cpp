#include "program/sent_bytes.h"

#include "program/op.h"

namespace crest {

double sent_bytes(const Program& p, const Instr& i, int64_t ranks) {
  const std::string_view op = i.op->name;
  if (op == "send" || op == "gather_piece" || op == "scatter_piece") return double(p.at(i.in[0]).bytes());
  if (op == "receive") return 0;
  double part = double(ranks - 1) / double(ranks), bytes = 0;
  if (op == "all_gather" || op.starts_with("gather_")) return part * double(p.at(i.out[0]).bytes());
  if (op == "reduce_scatter" || op.starts_with("scatter_")) return part * double(p.at(i.in[0]).bytes());
  if (op == "sum_rows") return 2 * part * double(p.at(i.in[0]).bytes());
  const bool halves = i.attrs.has("wire");  // bf16 copies of fp32 tensors
  for (ValueId v : i.in) bytes += halves ? 2.0 * double(p.at(v).numel()) : double(p.at(v).bytes());
  return 2 * part * bytes;
}

}  // namespace crest
