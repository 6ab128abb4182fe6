// Attention and its gradient, one query row at a time.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/heads.h"
#include "backend/cpu/reference/kernels.h"
#include "core/random.h"
#include "ops/index.h"

namespace crest::reference {

namespace {

struct Row {
  const KernelCall& c;
  Heads h;
  std::vector<double> qkv;
  double scale, p;
  bool causal;
  int64_t window;  // 0: none
  const Scalars* s;
  const int32_t* positions;

  Row(const KernelCall& call, size_t qkv_input, size_t scalars_input)
      : c(call),
        h(call, input(call, qkv_input)),
        qkv(input(call, qkv_input).values()),
        scale(call.instr.attrs.number("scale")),
        p(call.instr.attrs.number("p", 0.0)),
        causal(call.instr.attrs.integer("causal", 0)),
        window(call.instr.attrs.integer("window", 0)),
        s(call.has(scalars_input) ? &scalars(call, scalars_input) : nullptr),
        positions(call.has(scalars_input + 1) ? call.input<int32_t>(scalars_input + 1) : nullptr) {}

  // A row sees columns first .. visible - 1.
  int64_t first(int64_t b, int64_t row) const {
    int64_t of_document = positions ? row - positions[b * h.seq + row] : 0;
    return window ? std::max(of_document, row - window + 1) : of_document;
  }
  int64_t visible(int64_t row) const { return causal ? row + 1 : h.seq; }

  double score(int64_t b, int64_t head, int64_t row, int64_t column) const {
    const double *q = &qkv[size_t(h.q(b, row, head))], *k = &qkv[size_t(h.k(b, column, h.kv_of(head)))];
    double sum = 0;
    for (int64_t d = 0; d < h.dim; ++d) sum += q[d] * k[d];
    return scale * sum;
  }

  // Dropout's factor of the probability: 0 or 1 / (1 - p).
  double kept(int64_t b, int64_t head, int64_t row, int64_t column) const {
    if (p == 0) return 1;
    uint64_t stream = dropout_stream(uint64_t(s->sample_base + b), uint32_t(c.instr.attrs.integer("rng_id")));
    auto e = uint64_t(((head + c.part_begin(h.heads)) * h.seq + row) * h.seq + column);
    return uniform(random_bits(s->seed, stream, e)) >= p ? 1 / (1 - p) : 0;
  }
};

}  // namespace

void attention(const KernelCall& c) {
  Row r(c, in::attention::qkv, in::attention::scalars);
  const Heads& h = r.h;
  Tensor out = output(c, out::attention::o), lse = output(c, out::attention::lse);
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t row = 0; row < h.seq; ++row) {
        int64_t first = r.first(b, row), n = r.visible(row) - first;
        std::vector<double> s(static_cast<size_t>(n)), o(static_cast<size_t>(h.dim));
        for (int64_t j = 0; j < n; ++j) s[size_t(j)] = r.score(b, head, row, first + j);
        double largest = *std::max_element(s.begin(), s.end()), sum = 0;
        for (double x : s) sum += std::exp(x - largest);
        double row_lse = largest + std::log(sum);
        for (int64_t j = 0; j < n; ++j) {
          double probability = std::exp(s[size_t(j)] - row_lse) * r.kept(b, head, row, first + j);
          const double* v = &r.qkv[size_t(h.v(b, first + j, h.kv_of(head)))];
          for (int64_t d = 0; d < h.dim; ++d) o[size_t(d)] += probability * v[d];
        }
        for (int64_t d = 0; d < h.dim; ++d) out.set(h.o(b, row, head) + d, o[size_t(d)]);
        lse.set((b * h.heads + head) * h.seq + row, row_lse);
      }
}

// FlashAttention-2 (Dao 2023), section 3.1: ds = p (dp - do . o), with p from the saved lse.
void attention_grad(const KernelCall& c) {
  Row r(c, in::attention_grad::qkv, in::attention_grad::scalars);
  const Heads& h = r.h;
  auto dout = input(c, in::attention_grad::d_o).values(), out = input(c, in::attention_grad::o).values();
  Tensor lse = input(c, in::attention_grad::lse), dqkv = output(c, out::attention_grad::dqkv);
  std::vector<double> grad(r.qkv.size());
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t row = 0; row < h.seq; ++row) {
        const double *dy = &dout[size_t(h.o(b, row, head))], *o = &out[size_t(h.o(b, row, head))];
        double delta = 0;
        for (int64_t d = 0; d < h.dim; ++d) delta += dy[d] * o[d];
        auto q = size_t(h.q(b, row, head));
        for (int64_t j = r.first(b, row); j < r.visible(row); ++j) {
          auto k = size_t(h.k(b, j, h.kv_of(head))), v = size_t(h.v(b, j, h.kv_of(head)));
          double probability = std::exp(r.score(b, head, row, j) - lse[(b * h.heads + head) * h.seq + row]);
          double kept = r.kept(b, head, row, j), dp = 0;
          for (int64_t d = 0; d < h.dim; ++d) dp += dy[d] * r.qkv[v + size_t(d)];
          double ds = probability * (dp * kept - delta) * r.scale;
          for (size_t d = 0; d < size_t(h.dim); ++d) {
            grad[v + d] += probability * kept * dy[d];
            grad[q + d] += ds * r.qkv[k + d];
            grad[k + d] += ds * r.qkv[q + d];
          }
        }
      }
  for (size_t e = 0; e < grad.size(); ++e) dqkv.set(int64_t(e), grad[e]);
}

}  // namespace crest::reference
