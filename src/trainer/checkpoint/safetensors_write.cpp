#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "checkpoint/for_each_tensor.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

static std::string_view stored_name(DType t) {
  switch (t) {
    case DType::f64: return "F64";
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i64: return "I64";
    case DType::i32: return "I32";
    case DType::u16: return "U16";
    case DType::u8: return "U8";
    case DType::e4m3: return "F8_E4M3";
    case DType::e5m2: return "F8_E5M2";
    case DType::i8: return "I8";
  }
  fail_internal("a dtype without a safetensors name");
}

static std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("a name to save is not UTF-8: " + printable(text));
  }
}

std::string safetensors_preamble(const std::vector<TensorSource>& tensors, TensorOrder order_by,
                                 const std::map<std::string, std::string>& metadata, std::vector<size_t>* order) {
  order->resize(tensors.size());
  std::iota(order->begin(), order->end(), size_t(0));
  if (order_by == TensorOrder::canonical)
    std::stable_sort(order->begin(), order->end(), [&](size_t a, size_t b) {
      auto &x = tensors[a].spec, &y = tensors[b].spec;
      return size_of(x.dtype) != size_of(y.dtype) ? size_of(x.dtype) > size_of(y.dtype) : x.name < y.name;
    });
  auto all_metadata = metadata;
  all_metadata["format"] = "pt";
  std::string json = "{\"__metadata__\":{";
  for (auto& [key, value] : all_metadata) {
    if (json.back() != '{') json += ',';
    json += json_string(key) + ":" + json_string(value);
  }
  json += '}';
  uint64_t offset = 0;
  std::unordered_set<std::string_view> names;
  for (size_t i : *order) {
    auto& spec = tensors[i].spec;
    if (spec.name.empty() || spec.name == "__metadata__" || !names.insert(spec.name).second)
      fail_internal(fmt::format("two tensors named '{}', or a name that cannot be saved", printable(spec.name)));
    uint64_t bytes = byte_count(spec);
    json += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_string(spec.name),
                        stored_name(spec.dtype), fmt::join(spec.shape, ","), offset, offset + bytes);
    offset += bytes;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[size_t(i)] = char(uint64_t(json.size()) >> (8 * i));
  return length + json;
}

const char* TensorSource::bytes(std::vector<char>& scratch) const {
  if (!make) return static_cast<const char*>(data);
  scratch.resize(size_t(byte_count(spec)));
  make(scratch.data());
  return scratch.data();
}

void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors, TensorOrder order_by,
                       const std::map<std::string, std::string>& metadata) {
  write_safetensors(File::create(path), tensors, order_by, metadata);
}

void write_safetensors(File file, const std::vector<TensorSource>& tensors, TensorOrder order_by,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<size_t> order;
  std::string buffer = safetensors_preamble(tensors, order_by, metadata, &order);
  // Biases and norms are small. They are gathered, so a model with thousands of tensors needs few
  // system calls.
  constexpr uint64_t gather = 1 << 20;
  std::vector<char> scratch;
  for (size_t i : order) {
    uint64_t bytes = byte_count(tensors[i].spec);
    const char* data = tensors[i].bytes(scratch);
    if (buffer.size() + bytes > gather && !buffer.empty()) file.write(buffer), buffer.clear();
    if (bytes > gather)
      file.write(data, size_t(bytes));
    else if (bytes > 0)
      buffer.append(data, size_t(bytes));
  }
  file.write(buffer);
  file.sync();
  file.close();
}

std::vector<Digest> hash_tensors(const std::vector<TensorSource>& tensors) {
  std::vector<Digest> out(tensors.size());
  std::vector<uint64_t> bytes(tensors.size());
  uint64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) total += bytes[i] = byte_count(tensors[i].spec);
  for_each_tensor(tensors.size(), total, [&](size_t i) {
    std::vector<char> scratch;
    out[i] = sha256(tensors[i].bytes(scratch), size_t(bytes[i]));
  });
  return out;
}

}  // namespace crest
