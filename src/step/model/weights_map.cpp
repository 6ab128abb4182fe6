#include "model/weights_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"

namespace crest {

int64_t CanonicalTensor::elements() const {
  int64_t rows = 0;
  for (auto& part : parts) rows += part.rows;
  return rows * columns;
}

CanonicalTensor whole_tensor(const Param& p) {
  CanonicalTensor t;
  t.name = p.name, t.shape = p.shape.dims();
  t.parts = {{p.name, 0, p.shape[0]}}, t.columns = p.shape.rank() > 1 ? p.shape[1] : 1;
  return t;
}

std::string_view role_in_layer(std::string_view name) {
  return name.substr(name.starts_with("h.") ? name.find('.', 2) + 1 : 0);
}

namespace {

// "h.3.attn.qkv.weight" -> "h.3.", "attn.qkv", "weight"; "ln_f.bias" -> "", "ln_f", "bias".
struct MemberName {
  std::string layer, member, kind;
};
MemberName split_name(const std::string& name) {
  const size_t start = name.size() - role_in_layer(name).size(), last = name.rfind('.');
  return {name.substr(0, start), name.substr(start, last - start), name.substr(last + 1)};
}

class Tensors {
 public:
  Tensors(const TensorNames& names, const ModelConfig& c) : names_(names), c_(c) {
    for (auto& p : parameters_of(c)) by_name_[p.name] = p;
  }

  // false: the family has no name for the parameter.
  bool add(const Param& p) {
    if (p.name == "lm_head.weight") {
      out.push_back(whole_tensor(p));
      out.back().name = std::string(names_.head) + ".weight";
      return true;
    }
    const MemberName n = split_name(p.name);
    for (auto& row : n.layer.empty() ? names_.model : names_.members) {
      const std::string crest = row.crest;
      const size_t plus = crest.find('+');
      if (plus != std::string::npos && crest.substr(plus + 1) == n.member)
        return true;  // added with the first of the two
      if (crest.substr(0, plus) != n.member) continue;
      CanonicalTensor t = whole_tensor(p);
      // "h.3." -> "model.layers.3."
      std::string prefix = names_.prefix;
      if (!n.layer.empty()) prefix += names_.layer + n.layer.substr(2);
      t.name = prefix + row.file + "." + n.kind;
      shape(row, n, std::move(t));
      return true;
    }
    return false;
  }

  std::vector<CanonicalTensor> out;

 private:
  void shape(const TensorName& row, const MemberName& n, CanonicalTensor t) {
    const int64_t q = c_.heads * c_.head_dim, kv = c_.kv_heads * c_.head_dim, d = c_.head_dim;
    const std::string& qkv = t.parts[0].parameter;
    switch (row.form) {
      case TensorForm::same: break;
      case TensorForm::transposed:
        t.transposed = t.shape.size() == 2;
        if (t.transposed) std::swap(t.shape[0], t.shape[1]);
        break;
      case TensorForm::less_one: t.offset = 1; break;
      case TensorForm::joined: {
        const std::string other = n.layer + std::string(row.crest).substr(n.member.size() + 1) + "." + n.kind;
        t.parts.push_back({other, 0, by_name_.at(other).shape[0]});
        t.shape[0] += t.parts[1].rows;
        break;
      }
      case TensorForm::by_head: {
        std::vector<TensorPart> parts;
        for (int64_t h = 0; h < c_.heads; ++h)
          for (int64_t first : {int64_t(0), q, q + kv}) parts.push_back({qkv, first + h * d, d});
        t.parts = parts;
        break;
      }
      case TensorForm::apart:
      case TensorForm::apart_back: {
        int64_t first = 0;
        const size_t star = t.name.find('*');
        for (auto [letter, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
          CanonicalTensor part = t;
          part.name.replace(star, 1, letter);
          part.parts = {{qkv, first, rows}}, part.shape[0] = rows;
          if (row.form == TensorForm::apart_back && *letter != 'v') {
            part.parts.clear();
            for (int64_t h = first; h < first + rows; h += d)
              for (int64_t half : {d / 2, int64_t(0)}) part.parts.push_back({qkv, h + half, d / 2});
          }
          first += rows;
          out.push_back(std::move(part));
        }
        return;
      }
    }
    out.push_back(std::move(t));
  }

  const TensorNames& names_;
  const ModelConfig& c_;
  std::unordered_map<std::string, Param> by_name_;
};

}  // namespace

std::vector<CanonicalTensor> tensors_under(const TensorNames* names, const ModelConfig& config) {
  if (!names) {
    std::vector<CanonicalTensor> out;
    for (auto& p : parameters_of(config.base())) out.push_back(whole_tensor(p));
    return out;
  }
  Tensors tensors(*names, config);
  for (auto& p : parameters_of(config.base()))
    if (!tensors.add(p)) return {};
  return std::move(tensors.out);
}

std::vector<CanonicalTensor> canonical_tensors(const ModelConfig& config) {
  const Family* family = family_of(config);
  return tensors_under(family ? &family->names : nullptr, config);
}

std::vector<CanonicalTensor> saved_tensors(const ModelConfig& config) {
  if (config.lora.rank == 0) return canonical_tensors(config);
  std::vector<CanonicalTensor> out;
  for (auto& p : parameters_of(config))
    if (is_adapter(p)) out.push_back(whole_tensor(p));
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
void scatter_as(const CanonicalTensor& t, const void* from, const std::function<float*(const TensorPart&)>& place) {
  auto* x = static_cast<const T*>(from);
  for (auto& part : t.parts) {
    float* rows = place(part);
    if (t.transposed) return transpose(x, rows, t.columns, part.rows);
    const int64_t n = part.rows * t.columns;
    const float offset = t.offset;
#pragma omp parallel for schedule(static) if (n > (1 << 20))
    for (int64_t i = 0; i < n; ++i) rows[i] = offset == 0 ? widen(x[i]) : widen(x[i]) + offset;  // keeps -0
    x += n;
  }
}

}  // namespace

void gather(const CanonicalTensor& t, const std::function<const float*(const TensorPart&)>& place, float* out) {
  for (auto& part : t.parts) {
    const float* rows = place(part);
    if (t.transposed) return transpose(rows, out, part.rows, t.columns);
    const int64_t n = part.rows * t.columns;
    if (t.offset == 0)
      std::memcpy(out, rows, size_t(n) * sizeof(float));
    else
      for (int64_t i = 0; i < n; ++i) out[i] = rows[i] - t.offset;
    out += n;
  }
}

void scatter(const CanonicalTensor& t, const void* from, DType dtype,
             const std::function<float*(const TensorPart&)>& rows) {
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

void gather(const CanonicalTensor& t, const float* parameter, float* out) {
  gather(
      t, [&](const TensorPart& part) { return parameter + part.row * t.columns; }, out);
}
void scatter(const CanonicalTensor& t, const void* from, DType dtype, float* parameter) {
  scatter(t, from, dtype, [&](const TensorPart& part) { return parameter + part.row * t.columns; });
}

}  // namespace crest
