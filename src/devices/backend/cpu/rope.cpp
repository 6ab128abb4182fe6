// rope: rotary position embedding (Su et al., "RoFormer", 2021), half-split pairs, with
// rescaled frequencies.
#include <algorithm>
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/rope.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

// Angles per position, and the cosines and sines of positions 0 .. T-1 when no scalar moves them
// (positions in documents are among these).
struct RopeTable {
  std::vector<double> frequency;     // [rotary_dim / 2]
  double scale = 1, sine_scale = 1;  // sine_scale: negative if inverse
  std::vector<float> cosine, sine;
};

int64_t head_dim(const Value& qkv, const Attrs& a) {
  return qkv.shape.back() / (a.integer("heads") + 2 * a.integer("kv_heads"));
}

// How many elements of a head are rotated.
int64_t rotary_dim(const Value& qkv, const Attrs& a) { return a.integer("rotary_dim", head_dim(qkv, a)); }

std::vector<double> frequencies(int64_t dim, const Attrs& a) {
  std::vector<double> f(static_cast<size_t>(dim / 2));
  double theta = a.number("theta");
  for (size_t i = 0; i < f.size(); ++i) f[i] = std::pow(theta, -2.0 * double(i) / double(dim));
  if (!a.has("factor")) return f;
  double factor = a.number("factor");
  bool by_pair = a.has("first_pair");
  // Share of the slowed frequency: 0 at `none`, 1 at `whole`. By number of the pair, or (Llama 3)
  // by its turns within the original context.
  double none = a.number(by_pair ? "first_pair" : "high_freq_factor");
  double whole = a.number(by_pair ? "last_pair" : "low_freq_factor");
  double context = by_pair ? 0 : a.number("original_context");
  for (size_t i = 0; i < f.size(); ++i) {
    double at = by_pair ? double(i) : context * f[i] / (2 * M_PI);
    double slowed = std::clamp((at - none) / (whole - none), 0.0, 1.0);
    f[i] = slowed * f[i] / factor + (1 - slowed) * f[i];
  }
  return f;
}

// cosine and sine of position first + t for t in begin .. end-1, rows of rotary_dim / 2; turned
// backwards and scaled as the attributes say.
void fill(const RopeTable& table, int64_t first, int64_t begin, int64_t end, float* cosine, float* sine) {
  int64_t half = int64_t(table.frequency.size());
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < half; ++i) {
      double angle = double(first + t) * table.frequency[size_t(i)];
      cosine[t * half + i] = float(table.scale * std::cos(angle));
      sine[t * half + i] = float(table.sine_scale * std::sin(angle));
    }
}

// Positions are below this: the rows, or the tokens of a sequence shared by ranks.
int64_t length(const Value& qkv, const Attrs& a) { return a.integer("length", qkv.shape[1]); }

std::string reject(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::rope::qkv)); !why.empty()) return why;
  if (rotary_dim(q.in(in::rope::qkv), q.instr.attrs) % 2) return "head_dim is odd";
  return check_same(q.out(out::rope::y), q.in(in::rope::qkv));
}

// With a moving position the table lives in the workspace.
size_t workspace(const KernelQuery& q) {
  if (!q.has(in::rope::scalars)) return 0;
  return 2 * float_lines(q.in(in::rope::qkv).shape[1] * (rotary_dim(q.in(in::rope::qkv), q.instr.attrs) / 2));
}

std::shared_ptr<void> prepare(const KernelQuery& q) {
  auto table = std::make_shared<RopeTable>();
  int64_t dim = rotary_dim(q.in(in::rope::qkv), q.instr.attrs), tokens = length(q.in(in::rope::qkv), q.instr.attrs);
  table->frequency = frequencies(dim, q.instr.attrs);
  table->scale = q.instr.attrs.number("attention_factor", 1);
  table->sine_scale = q.instr.attrs.integer("inverse", 0) ? -table->scale : table->scale;
  if (!q.has(in::rope::scalars)) {
    table->cosine.resize(size_t(tokens * (dim / 2)));
    table->sine.resize(table->cosine.size());
    fill(*table, 0, 0, tokens, table->cosine.data(), table->sine.data());
  }
  return table;
}

void launch(const KernelCall& c) {
  const Value& qkv = c.in_value(in::rope::qkv);
  const auto& table = *static_cast<const RopeTable*>(c.prepared);
  int64_t batch = qkv.shape[0], tokens = qkv.shape[1], width = qkv.shape[2], dim = head_dim(qkv, c.instr.attrs);
  const int64_t part = rotary_dim(qkv, c.instr.attrs);
  int64_t rotated = c.instr.attrs.integer("heads") + c.instr.attrs.integer("kv_heads"), half = part / 2;
  const float* cosine = table.cosine.data();
  const float* sine = table.sine.data();
  const int32_t* positions = c.has(in::rope::positions) ? c.input<int32_t>(in::rope::positions) : nullptr;
  const int64_t table_tokens = length(qkv, c.instr.attrs);
  int threads = threads_for(c.threads, qkv.numel(), 8192);
  if (c.has(in::rope::scalars)) {
    float* w = static_cast<float*>(c.workspace);
    float* w2 = w + float_lines(tokens * half) / 4;
    int64_t first = c.input<Scalars>(in::rope::scalars)->position;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; ++t) fill(table, first, t, t + 1, w, w2);
    cosine = w, sine = w2;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < batch * tokens; ++r) {
    int64_t offset = r * width * int64_t(size_of(qkv.dtype)), t = r % tokens;
    if (positions) t = std::clamp<int64_t>(positions[r], 0, table_tokens - 1);
    CREST_SIMD_PICK(rope_functions)
        .token(c.input<char>(in::rope::qkv) + offset, c.output<char>(out::rope::y) + offset, qkv.dtype,
               cosine + t * half, sine + t * half, rotated, width / dim, dim, part);
  }
}

}  // namespace

Kernel rope_kernel() { return {"rope", "cpu.rope.simd", reject, workspace, prepare, launch}; }

}  // namespace crest::cpu
