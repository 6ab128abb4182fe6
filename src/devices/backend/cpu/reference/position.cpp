// Learned positions and their gradient.
#include "backend/cpu/reference/dropout.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

void add_position(const KernelCall& c) {
  Tensor x = input(c, in::add_position::x), table = input(c, in::add_position::table),
         y = output(c, out::add_position::y);
  constexpr size_t at = in::add_position::position;
  const bool given = c.has(at), tokens = given && c.in_value(at).dtype == DType::i32;
  int64_t seq = x.size(1), width = x.size(2), first = given && !tokens ? scalars(c, at).position : 0;
  Dropout dropped(c, in::add_position::scalars, x.shape());
  for (int64_t e = 0; e < x.numel(); ++e) {
    int64_t position = tokens ? c.input<int32_t>(at)[e / width] : first + e / width % seq;
    y.set(e, x[e] + (position < table.size(0) ? table[position * width + e % width] : 0));
    y.set(e, dropped(e, y[e]));
  }
}

void position_grad(const KernelCall& c) {
  Tensor dy = input(c, in::position_grad::dy), acc = input(c, in::position_grad::acc),
         table = output(c, out::position_grad::dtable);
  int64_t batch = dy.size(0), seq = dy.size(1), width = dy.size(2);
  for (int64_t e = 0; e < table.numel(); ++e) {
    double sum = so_far(acc, e);
    if (e / width < seq)
      for (int64_t b = 0; b < batch; ++b) sum += dy[b * seq * width + e];
    table.set(e, sum);
  }
}

}  // namespace crest::reference
