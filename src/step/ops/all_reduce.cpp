// Sum or mean over the ranks of the communicator.
#include <algorithm>

#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void infer(Infer& c) {
  c.check(c.inputs() >= 1, "needs at least one tensor");
  rules::inputs(c, c.inputs(), c.inputs());
  rules::contiguous(c);
  rules::flag(c, "mean");
  for (size_t i = 0; i < c.inputs(); ++i) {
    rules::floating(c, i);
    if (c.attrs().has("wire")) c.check(c.in(i).dtype == DType::f32, "attribute 'wire' is for f32 tensors");
    c.out_in_place(i);
  }
  if (c.attrs().has("wire")) c.check(c.attrs().text("wire") == "bf16", "attribute 'wire' must be bf16");
  if (!rules::flag(c, "flat")) return;
  for (size_t i = 1; i < c.inputs(); ++i) {
    const Value &a = c.in(i - 1), &b = c.in(i);
    c.check(
        a.layout.storage == b.layout.storage && a.dtype == b.dtype && a.layout.offset + a.numel() <= b.layout.offset,
        "tensors of a flat all_reduce must follow one another in one storage");
  }
}

static Cost cost(const Program& p, const Instr& i) {
  double n = 0;
  for (ValueId v : i.in) n += double(p.at(v).numel());
  return traffic_with_flops(p, i, n);
}

int64_t flat_elements(const Program& p, const Instr& i) {
  const Value &first = p.at(i.in.front()), &last = p.at(i.in.back());
  return last.layout.offset + last.numel() - first.layout.offset;
}

bool is_flat(const Instr& i) { return i.attrs.integer("flat", 0) != 0; }

size_t wire_bytes(const Program& p, const Instr& i) {
  if (!i.attrs.has("wire")) return 0;
  int64_t most = 0;
  for (ValueId v : i.in) most = std::max(most, p.at(v).numel());
  if (is_flat(i)) most = flat_elements(p, i);
  return size_t(most) * 2;
}

const OpDef op_all_reduce = {.name = "all_reduce",
                             .inputs = in::all_reduce::names,
                             .outputs = out::all_reduce::names,
                             .help = "x1, x2, .. -> the same: sum or mean over the ranks, in place",
                             .op_class = OpClass::communication,
                             .infer = infer,
                             .cost = cost};

}  // namespace crest
