// Attention and its gradient, one query row at a time. attention_rows is the same for the queries
// of this rank's chunks.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/heads.h"
#include "backend/cpu/reference/kernels.h"
#include "core/random.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::reference {

namespace {

// Inputs q and kv: the same qkv, or those of attention_rows.
struct Places {
  int64_t batch, heads, kv_heads, dim, queries, keys;
  bool apart;  // keys from queries
  OwnChunks chunks;

  Places(const KernelCall& c, size_t q_input, size_t kv_input)
      : batch(input(c, q_input).size(0)),
        heads(c.instr.attrs.integer("heads")),
        kv_heads(c.instr.attrs.integer("kv_heads")),
        dim(input(c, q_input).size(2) / (q_input == kv_input ? heads + 2 * kv_heads : heads)),
        queries(input(c, q_input).size(1)),
        keys(input(c, kv_input).size(1)),
        apart(q_input != kv_input),
        chunks(keys, keys / queries, c.chunk_place()) {}

  int64_t kv_of(int64_t head) const { return head / (heads / kv_heads); }
  // Index of the first element of a head's vector at (sample, token of the tensor).
  int64_t q(int64_t b, int64_t t, int64_t head) const {
    return (b * queries + t) * (apart ? heads : heads + 2 * kv_heads) * dim + head * dim;
  }
  int64_t k(int64_t b, int64_t t, int64_t kv) const {
    return apart ? ((b * keys + t) * 2 * kv_heads + kv) * dim : q(b, t, heads + kv);
  }
  int64_t v(int64_t b, int64_t t, int64_t kv) const { return k(b, t, kv) + kv_heads * dim; }
  int64_t o(int64_t b, int64_t t, int64_t head) const { return ((b * queries + t) * heads + head) * dim; }
  // The place of a query in its sequence.
  int64_t token(int64_t query) const { return apart ? chunks.token(query) : query; }
};

struct Row {
  const KernelCall& c;
  Places h;
  std::vector<double> queries, keys;
  double scale, p;
  bool causal;
  int64_t window;  // 0: none
  const Scalars* s;
  const int32_t* positions;

  Row(const KernelCall& call, size_t q_input, size_t kv_input, size_t scalars_input)
      : c(call),
        h(call, q_input, kv_input),
        queries(input(call, q_input).values()),
        keys(input(call, kv_input).values()),
        scale(call.instr.attrs.number("scale")),
        p(call.instr.attrs.number("p", 0.0)),
        causal(h.apart || call.instr.attrs.integer("causal", 0)),
        window(call.instr.attrs.integer("window", 0)),
        s(call.has(scalars_input) ? &scalars(call, scalars_input) : nullptr),
        positions(call.has(scalars_input + 1) ? call.input<int32_t>(scalars_input + 1) : nullptr) {}

  // A query sees columns first .. visible - 1.
  int64_t first(int64_t b, int64_t query) const {
    const int64_t row = h.token(query);
    int64_t of_document = positions ? row - positions[b * h.queries + query] : 0;
    return window ? std::max(of_document, row - window + 1) : of_document;
  }
  int64_t visible(int64_t query) const { return causal ? h.token(query) + 1 : h.keys; }

  double score(int64_t b, int64_t head, int64_t query, int64_t column) const {
    const double *q = &queries[size_t(h.q(b, query, head))], *k = &keys[size_t(h.k(b, column, h.kv_of(head)))];
    double sum = 0;
    for (int64_t d = 0; d < h.dim; ++d) sum += q[d] * k[d];
    return scale * sum;
  }

  // Dropout's factor of the probability: 0 or 1 / (1 - p).
  double kept(int64_t b, int64_t head, int64_t query, int64_t column) const {
    if (p == 0) return 1;
    uint64_t stream = dropout_stream(uint64_t(s->sample_base + b), uint32_t(c.instr.attrs.integer("rng_id")));
    auto e = uint64_t(((head + c.part_begin(h.heads)) * h.keys + h.token(query)) * h.keys + column);
    return uniform(random_bits(s->seed, stream, e)) >= p ? 1 / (1 - p) : 0;
  }
};

void forward(const Row& r, Tensor out, Tensor lse) {
  const Places& h = r.h;
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t row = 0; row < h.queries; ++row) {
        int64_t first = r.first(b, row), n = r.visible(row) - first;
        std::vector<double> s(static_cast<size_t>(n)), o(static_cast<size_t>(h.dim));
        for (int64_t j = 0; j < n; ++j) s[size_t(j)] = r.score(b, head, row, first + j);
        double largest = *std::max_element(s.begin(), s.end()), sum = 0;
        for (double x : s) sum += std::exp(x - largest);
        double row_lse = largest + std::log(sum);
        for (int64_t j = 0; j < n; ++j) {
          double probability = std::exp(s[size_t(j)] - row_lse) * r.kept(b, head, row, first + j);
          const double* v = &r.keys[size_t(h.v(b, first + j, h.kv_of(head)))];
          for (int64_t d = 0; d < h.dim; ++d) o[size_t(d)] += probability * v[d];
        }
        for (int64_t d = 0; d < h.dim; ++d) out.set(h.o(b, row, head) + d, o[size_t(d)]);
        lse.set((b * h.heads + head) * h.queries + row, row_lse);
      }
}

// FlashAttention-2 (Dao 2023), section 3.1: ds = p (dp - do . o), with p from the saved lse. Adds
// to the gradients.
void backward(const Row& r, const std::vector<double>& dout, const std::vector<double>& out, const Tensor& lse,
              std::vector<double>& dq, std::vector<double>& dkv) {
  const Places& h = r.h;
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t row = 0; row < h.queries; ++row) {
        const double *dy = &dout[size_t(h.o(b, row, head))], *o = &out[size_t(h.o(b, row, head))];
        double delta = 0;
        for (int64_t d = 0; d < h.dim; ++d) delta += dy[d] * o[d];
        auto q = size_t(h.q(b, row, head));
        for (int64_t j = r.first(b, row); j < r.visible(row); ++j) {
          auto k = size_t(h.k(b, j, h.kv_of(head))), v = size_t(h.v(b, j, h.kv_of(head)));
          double probability = std::exp(r.score(b, head, row, j) - lse[(b * h.heads + head) * h.queries + row]);
          double kept = r.kept(b, head, row, j), dp = 0;
          for (int64_t d = 0; d < h.dim; ++d) dp += dy[d] * r.keys[v + size_t(d)];
          double ds = probability * (dp * kept - delta) * r.scale;
          for (size_t d = 0; d < size_t(h.dim); ++d) {
            dkv[v + d] += probability * kept * dy[d];
            dq[q + d] += ds * r.keys[k + d];
            dkv[k + d] += ds * r.queries[q + d];
          }
        }
      }
}

void set(Tensor to, const std::vector<double>& x) {
  for (size_t e = 0; e < x.size(); ++e) to.set(int64_t(e), x[e]);
}

}  // namespace

void attention(const KernelCall& c) {
  namespace at = in::attention;
  forward(Row(c, at::qkv, at::qkv, at::scalars), output(c, out::attention::o), output(c, out::attention::lse));
}

void attention_rows(const KernelCall& c) {
  namespace at = in::attention_rows;
  forward(Row(c, at::q, at::kv, at::scalars), output(c, out::attention_rows::o), output(c, out::attention_rows::lse));
}

void attention_grad(const KernelCall& c) {
  namespace at = in::attention_grad;
  const Row r(c, at::qkv, at::qkv, at::scalars);
  std::vector<double> dqkv(r.queries.size());
  backward(r, input(c, at::d_o).values(), input(c, at::o).values(), input(c, at::lse), dqkv, dqkv);
  set(output(c, out::attention_grad::dqkv), dqkv);
}

void attention_rows_grad(const KernelCall& c) {
  namespace at = in::attention_rows_grad;
  const Row r(c, at::q, at::kv, at::scalars);
  std::vector<double> dq(r.queries.size()), dkv(r.keys.size());
  backward(r, input(c, at::d_o).values(), input(c, at::o).values(), input(c, at::lse), dq, dkv);
  set(output(c, out::attention_rows_grad::dq), dq);
  set(output(c, out::attention_rows_grad::dkv), dkv);
}

}  // namespace crest::reference
