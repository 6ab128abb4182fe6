#include "model/weights_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace crest {

CanonicalTensor whole_tensor(const Param& p) {
  CanonicalTensor t;
  t.name = t.parameter = p.name, t.shape = p.shape.dims();
  t.rows = p.shape[0], t.columns = p.shape.rank() > 1 ? p.shape[1] : 1;
  return t;
}

WeightFormat weight_format(const ModelConfig& c) {
  const bool equal_heads = c.heads == c.kv_heads && c.heads * c.head_dim == c.width;
  if (c.norm == NormKind::layer && c.position == PositionKind::learned && c.activation != ActivationKind::swiglu &&
      c.bias && equal_heads)
    return WeightFormat::gpt2;
  const bool llama_biases = !c.bias && (c.attention_bias || !(c.qkv_bias && c.mlp_bias));
  if (c.norm == NormKind::rms && c.position == PositionKind::rope && c.activation == ActivationKind::swiglu &&
      llama_biases)
    return WeightFormat::llama;
  return WeightFormat::crest;
}

namespace {

// Crest's name for a member of a layer, and the file's name for it.
struct Rename {
  const char *crest, *file;
};
const std::vector<Rename> gpt2_names = {{"attn.qkv", "attn.c_attn"},
                                        {"attn.proj", "attn.c_proj"},
                                        {"mlp.fc", "mlp.c_fc"},
                                        {"mlp.proj", "mlp.c_proj"},
                                        {"ln_1", "ln_1"},
                                        {"ln_2", "ln_2"}};
const std::vector<Rename> llama_names = {{"ln_1", "input_layernorm"},       {"ln_2", "post_attention_layernorm"},
                                         {"attn.proj", "self_attn.o_proj"}, {"mlp.gate", "mlp.gate_proj"},
                                         {"mlp.up", "mlp.up_proj"},         {"mlp.proj", "mlp.down_proj"}};

CanonicalTensor whole(const Param& p, std::string name, bool transposed) {
  CanonicalTensor t = whole_tensor(p);
  t.name = std::move(name), t.transposed = transposed;
  if (transposed) std::swap(t.shape[0], t.shape[1]);
  return t;
}

// "h.3.attn.qkv.weight" -> "3", "attn.qkv", "weight".
struct LayerName {
  std::string layer, member, kind;
};
LayerName split_layer_name(const std::string& name) {
  size_t first = name.find('.'), second = name.find('.', first + 1), last = name.rfind('.');
  return {name.substr(first + 1, second - first - 1), name.substr(second + 1, last - second - 1),
          name.substr(last + 1)};
}

const char* renamed(const std::vector<Rename>& table, const std::string& member) {
  for (auto& r : table)
    if (member == r.crest) return r.file;
  fail_internal("no name for parameter member " + member, "weights_map");
}

CanonicalTensor gpt2_tensor(const Param& p) {
  if (!p.name.starts_with("h.")) return whole(p, p.name == "lm_head.weight" ? p.name : "transformer." + p.name, false);
  LayerName n = split_layer_name(p.name);
  return whole(p, fmt::format("transformer.h.{}.{}.{}", n.layer, renamed(gpt2_names, n.member), n.kind),
               p.shape.rank() == 2);
}

void llama_tensors(const ModelConfig& c, const Param& p, std::vector<CanonicalTensor>& out) {
  if (p.name == "wte.weight") return out.push_back(whole(p, "model.embed_tokens.weight", false));
  if (p.name == "ln_f.weight") return out.push_back(whole(p, "model.norm.weight", false));
  if (p.name == "lm_head.weight") return out.push_back(whole(p, p.name, false));
  LayerName n = split_layer_name(p.name);
  std::string prefix = fmt::format("model.layers.{}.", n.layer);
  if (n.member != "attn.qkv")
    return out.push_back(whole(p, prefix + renamed(llama_names, n.member) + "." + n.kind, false));
  int64_t row = 0;
  for (auto [name, heads] : {std::pair{"q_proj", c.heads}, {"k_proj", c.kv_heads}, {"v_proj", c.kv_heads}}) {
    CanonicalTensor t = whole(p, prefix + "self_attn." + name + "." + n.kind, false);
    t.row = row, t.rows = t.shape[0] = heads * c.head_dim;
    row += t.rows;
    out.push_back(std::move(t));
  }
}

}  // namespace

std::vector<CanonicalTensor> canonical_tensors(const ModelConfig& config) {
  WeightFormat format = weight_format(config);
  std::vector<CanonicalTensor> out;
  for (auto& p : parameters_of(config)) {
    if (format == WeightFormat::llama)
      llama_tensors(config, p, out);
    else
      out.push_back(format == WeightFormat::gpt2 ? gpt2_tensor(p) : whole(p, p.name, false));
  }
  return out;
}

namespace {

inline float widen(float x) { return x; }
inline float widen(double x) { return float(x); }
inline float widen(bfloat16 x) { return to_float(x); }
inline float widen(float16 x) { return to_float(x); }

// to[j][i] = from[i][j] for from [rows, columns]; 32 x 32 tiles keep both sides in the L1 cache.
template <class T>
void transpose(const T* from, float* to, int64_t rows, int64_t columns) {
  constexpr int64_t tile = 32;
#pragma omp parallel for schedule(static) if (rows * columns > (1 << 20))
  for (int64_t i0 = 0; i0 < rows; i0 += tile)
    for (int64_t j0 = 0; j0 < columns; j0 += tile)
      for (int64_t j = j0; j < std::min(j0 + tile, columns); ++j)
        for (int64_t i = i0; i < std::min(i0 + tile, rows); ++i) to[j * rows + i] = widen(from[i * columns + j]);
}

template <class T>
void scatter_as(const CanonicalTensor& t, const void* from, float* rows) {
  auto* x = static_cast<const T*>(from);
  if (t.transposed) return transpose(x, rows, t.columns, t.rows);
  int64_t n = t.elements();
#pragma omp parallel for schedule(static) if (n > (1 << 20))
  for (int64_t i = 0; i < n; ++i) rows[i] = widen(x[i]);
}

}  // namespace

void gather(const CanonicalTensor& t, const float* parameter, float* out) {
  const float* rows = parameter + t.row * t.columns;
  if (t.transposed)
    transpose(rows, out, t.rows, t.columns);
  else
    std::memcpy(out, rows, size_t(t.elements()) * sizeof(float));
}

void scatter(const CanonicalTensor& t, const void* from, DType dtype, float* parameter) {
  float* rows = parameter + t.row * t.columns;
  switch (dtype) {
    case DType::f64: return scatter_as<double>(t, from, rows);
    case DType::f32: return scatter_as<float>(t, from, rows);
    case DType::bf16: return scatter_as<bfloat16>(t, from, rows);
    case DType::f16: return scatter_as<float16>(t, from, rows);
    default:
      fail(fmt::format("tensor {} has dtype {}, not a float", printable(t.name), name(dtype)), "",
           "Weights must be f64, f32, bf16 or f16.");
  }
}

}  // namespace crest
