#include "interop/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

namespace crest {

static_assert(std::endian::native == std::endian::little);  // numbers are copied as they are in memory

namespace {

// Types of metadata.
constexpr uint32_t of_uint32 = 4, of_int32 = 5, of_float32 = 6, of_bool = 7, of_string = 8, of_array = 9;

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append(out, uint64_t(text.size()));
  out.append(text);
}

uint64_t aligned(uint64_t bytes) {
  return (bytes + GgufHeader::alignment - 1) / GgufHeader::alignment * GgufHeader::alignment;
}

// ggml's rule: the largest magnitude becomes 127. The numbers are made with the scale before its
// rounding to f16.
bool store_block(const float* x, uint8_t* out) {
  float largest = 0;
  for (int64_t i = 0; i < q8_0_block; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / 127, inverse = std::isfinite(1 / scale) ? 1 / scale : 0;
  const float16 stored = to_float16(scale);
  if (!std::isfinite(to_float(stored))) return false;
  std::memcpy(out, &stored, sizeof stored);
  for (int64_t i = 0; i < q8_0_block; ++i) {
    const auto whole = int8_t(std::round(x[i] * inverse));
    std::memcpy(out + sizeof stored + i, &whole, 1);
  }
  return true;
}

}  // namespace

std::string_view name(GgufType type) {
  switch (type) {
    case GgufType::f32: return "f32";
    case GgufType::f16: return "f16";
    case GgufType::q8_0: return "q8_0";
    case GgufType::bf16: return "bf16";
  }
  return "";
}

uint64_t stored_bytes(GgufType type, int64_t elements) {
  switch (type) {
    case GgufType::f32: return uint64_t(elements) * 4;
    case GgufType::f16:
    case GgufType::bf16: return uint64_t(elements) * 2;
    case GgufType::q8_0: break;
  }
  if (elements % q8_0_block) fail_internal("q8_0 of a part of a block", "gguf_file");
  return uint64_t(elements / q8_0_block * q8_0_bytes);
}

bool store_values(GgufType type, std::span<const float> values, uint8_t* out) {
  bool finite = true;
  switch (type) {
    case GgufType::f32:
      for (float x : values) finite = finite && std::isfinite(x);
      std::memcpy(out, values.data(), values.size_bytes());
      break;
    case GgufType::f16:
      for (size_t i = 0; i < values.size(); ++i) {
        const float16 x = to_float16(values[i]);
        finite = finite && std::isfinite(to_float(x));
        std::memcpy(out + 2 * i, &x, sizeof x);
      }
      break;
    case GgufType::bf16:
      for (size_t i = 0; i < values.size(); ++i) {
        const bfloat16 x = to_bfloat16(values[i]);
        finite = finite && std::isfinite(to_float(x));
        std::memcpy(out + 2 * i, &x, sizeof x);
      }
      break;
    case GgufType::q8_0:
      stored_bytes(type, int64_t(values.size()));  // whole blocks only
      for (size_t i = 0; i < values.size() / size_t(q8_0_block); ++i)
        finite = store_block(&values[i * size_t(q8_0_block)], out + i * size_t(q8_0_bytes)) && finite;
      break;
  }
  return finite;
}

void GgufHeader::key(std::string_view key, uint32_t type) {
  append_text(metadata_, key);
  append(metadata_, type);
  ++metadata_count_;
}

void GgufHeader::array(std::string_view name, uint32_t type, size_t elements) {
  key(name, of_array);
  append(metadata_, type);
  append(metadata_, uint64_t(elements));
}

void GgufHeader::number(std::string_view name, int64_t value) {
  if (value < 0 || value > UINT32_MAX) fail_internal("a number beyond 32 bits for " + std::string(name), "gguf_file");
  key(name, of_uint32);
  append(metadata_, uint32_t(value));
}

void GgufHeader::real(std::string_view name, double value) {
  key(name, of_float32);
  append(metadata_, float(value));
}

void GgufHeader::flag(std::string_view name, bool value) {
  key(name, of_bool);
  append(metadata_, uint8_t(value));
}

void GgufHeader::text(std::string_view name, std::string_view value) {
  key(name, of_string);
  append_text(metadata_, value);
}

void GgufHeader::numbers(std::string_view name, const std::vector<int32_t>& values) {
  array(name, of_int32, values.size());
  for (int32_t x : values) append(metadata_, x);
}

void GgufHeader::reals(std::string_view name, const std::vector<float>& values) {
  array(name, of_float32, values.size());
  for (float x : values) append(metadata_, x);
}

void GgufHeader::flags(std::string_view name, const std::vector<bool>& values) {
  array(name, of_bool, values.size());
  for (bool x : values) append(metadata_, uint8_t(x));
}

void GgufHeader::texts(std::string_view name, const std::vector<std::string>& values) {
  array(name, of_string, values.size());
  for (auto& x : values) append_text(metadata_, x);
}

void GgufHeader::tensor(std::string_view name, const std::vector<int64_t>& shape, GgufType type) {
  append_text(tensors_, name);
  append(tensors_, uint32_t(shape.size()));
  int64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    append(tensors_, uint64_t(shape[i]));
    elements *= shape[i];
  }
  append(tensors_, uint32_t(type));
  append(tensors_, data_bytes_);
  data_bytes_ += aligned(stored_bytes(type, elements));
  ++tensor_count_;
}

std::string GgufHeader::bytes() const {
  std::string out = "GGUF";
  append(out, uint32_t(3));
  append(out, tensor_count_);
  append(out, metadata_count_);
  out += metadata_;
  out += tensors_;
  out.resize(aligned(out.size()));
  return out;
}

}  // namespace crest
