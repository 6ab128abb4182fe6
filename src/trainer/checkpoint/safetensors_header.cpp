// The header of a safetensors file: one SAX pass
// without a JSON tree, then the layout of the data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr size_t max_tensors = 100'000, max_name = 512, max_rank = 8, max_metadata = 10'000;

struct StoredType {
  std::string_view name;
  size_t bytes;
  DType dtype;
  bool readable;
};
// Every dtype of the format. Those without a DType keep their size, so the rest of the file is
// usable.
constexpr StoredType stored_types[] = {
    {"F64", 8, DType::f64, true}, {"F32", 4, DType::f32, true},     {"BF16", 2, DType::bf16, true},
    {"F16", 2, DType::f16, true}, {"I64", 8, DType::i64, true},     {"I32", 4, DType::i32, true},
    {"U16", 2, DType::u16, true}, {"U8", 1, DType::u8, true},       {"BOOL", 1, DType::u8, false},
    {"I8", 1, DType::u8, false},  {"I16", 2, DType::u8, false},     {"U32", 4, DType::u8, false},
    {"U64", 8, DType::u8, false}, {"F8_E4M3", 1, DType::u8, false}, {"F8_E5M2", 1, DType::u8, false},
};

// A state machine over the events. Each handler checks whether its event is allowed here.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  SafetensorsHeader header;

  [[noreturn]] void refuse(const std::string& what) const {
    fail("damaged safetensors header: " + what, printable(where_), "Copy or download the file again.");
  }

  bool start_object(size_t) override {
    ++depth_;
    if (in_array_ || depth_ > 2) refuse("an unexpected object" + at());
    if (depth_ == 2 && !in_metadata_) entry_ = {}, begin_ = end_ = 0, fields_ = 0, entry_.spec.name = name_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) finish_tensor();
    if (depth_ == 2) in_metadata_ = false;
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (key.size() > max_name) refuse(fmt::format("a tensor name is longer than {} bytes", max_name));
      if (!names_.insert(key).second) refuse(fmt::format("'{}' appears twice", printable(key)));
      if (key == "__metadata__") {
        in_metadata_ = true;
      } else {
        if (key.empty()) refuse("a tensor has no name");
        if (header.tensors.size() >= max_tensors) refuse(fmt::format("more than {} tensors", max_tensors));
      }
      name_ = std::move(key);
      field_ = Field::none;
    } else if (in_metadata_) {
      if (header.metadata.size() >= max_metadata) refuse(fmt::format("more than {} metadata entries", max_metadata));
      metadata_key_ = std::move(key);
      if (header.metadata.count(metadata_key_)) refuse("a metadata key appears twice");
    } else {
      field_ = key == "dtype" ? Field::dtype : key == "shape" ? Field::shape : Field::offsets;
      if (field_ == Field::offsets && key != "data_offsets")
        refuse(fmt::format("unknown key '{}'{}", printable(key), at()));
      if (fields_ & unsigned(field_)) refuse(fmt::format("'{}' appears twice{}", key, at()));
      fields_ |= unsigned(field_);
    }
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[metadata_key_] = std::move(text);
    } else if (depth_ == 2 && !in_array_ && field_ == Field::dtype) {
      for (auto& type : stored_types)
        if (type.name == text) {
          entry_.stored_as = text, entry_.spec.dtype = type.dtype, entry_.readable = type.readable;
          size_ = type.bytes;
          return true;
        }
      refuse(fmt::format("unknown dtype '{}'{}", printable(text, 40), at()));
    } else {
      refuse("an unexpected string" + at());
    }
    return true;
  }
  bool start_array(size_t) override {
    if (in_array_ || depth_ != 2 || in_metadata_ || (field_ != Field::shape && field_ != Field::offsets))
      refuse("an unexpected list" + at());
    in_array_ = true;
    count_ = 0;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    if (field_ == Field::offsets && count_ != 2) refuse("data_offsets must hold two numbers" + at());
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) refuse("an unexpected number" + at());
    if (value > uint64_t(std::numeric_limits<int64_t>::max())) refuse("a number is too large" + at());
    if (field_ == Field::shape) {
      if (count_ == max_rank) refuse(fmt::format("more than {} dimensions{}", max_rank, at()));
      entry_.spec.shape.push_back(int64_t(value));
    } else {
      if (count_ == 2) refuse("data_offsets must hold two numbers" + at());
      (count_ == 0 ? begin_ : end_) = value;
    }
    ++count_;
    return true;
  }
  bool number_integer(number_integer_t) override { refuse("a negative number" + at()); }
  bool number_float(number_float_t, const string_t&) override { refuse("a fraction instead of an integer" + at()); }
  bool null() override { refuse("an unexpected null" + at()); }
  bool boolean(bool) override { refuse("an unexpected true or false" + at()); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse(fmt::format("not valid JSON ({})", line_and_column(text_, position > 0 ? position - 1 : 0)));
  }

 private:
  enum class Field : unsigned { none = 0, dtype = 1, shape = 2, offsets = 4 };

  std::string at() const { return name_.empty() ? "" : fmt::format(" (tensor '{}')", printable(name_)); }

  void finish_tensor() {
    if (fields_ != 7) refuse("dtype, shape or data_offsets is missing" + at());
    uint64_t bytes = size_;
    for (int64_t n : entry_.spec.shape)
      if (__builtin_mul_overflow(bytes, uint64_t(n), &bytes)) refuse("the size overflows" + at());
    if (begin_ > end_ || end_ - begin_ != bytes)
      refuse(fmt::format("shape and dtype need {} bytes, but data_offsets are [{}, {}]{}", bytes, begin_, end_, at()));
    entry_.offset = begin_, entry_.bytes = bytes;
    header.tensors.push_back(std::move(entry_));
  }

  std::string_view text_;
  std::string where_, name_, metadata_key_;
  int depth_ = 0;
  bool in_metadata_ = false, in_array_ = false;
  Field field_ = Field::none;
  unsigned fields_ = 0;
  size_t count_ = 0, size_ = 0;
  uint64_t begin_ = 0, end_ = 0;
  TensorEntry entry_;
  std::unordered_set<std::string> names_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& where) {
  HeaderReader reader(json, where);
  if (json.empty() || json[0] != '{') reader.refuse("it does not start with '{'");
  // A tensor has at most 7 + rank values; metadata entries have two each.
  JsonLimits limits{uint64_t(100) << 20, 4, max_tensors * (7 + max_rank) + 2 * max_metadata, uint64_t(8) << 20};
  check_json_limits(json, limits, where);
  // The format pads with trailing spaces; the SAX parser skips them and rejects anything else.
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  auto& tensors = reader.header.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  uint64_t next = 0;
  for (auto& t : tensors) {
    if (t.offset != next)
      reader.refuse(fmt::format("tensor '{}' starts at byte {} of the data instead of {} (gap or overlap)",
                                printable(t.spec.name), t.offset, next));
    next = t.offset + t.bytes;
  }
  if (next != data_bytes)
    fail(fmt::format("damaged safetensors file: the header describes {} bytes of tensors, but the file has {}", next,
                     data_bytes),
         printable(where), next > data_bytes ? "The file is cut short; copy or download it again." : "");
  reader.header.data_start = 8 + json.size();
  for (auto& t : tensors) t.offset += reader.header.data_start;
  return std::move(reader.header);
}

int64_t element_count(const TensorSpec& spec) {
  int64_t n = 1;
  for (int64_t d : spec.shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) fail("a shape is negative or too large", describe(spec));
  return n;
}

uint64_t byte_count(const TensorSpec& spec) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(uint64_t(element_count(spec)), size_of(spec.dtype), &bytes))
    fail("a shape is too large", describe(spec));
  return bytes;
}

std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {} [{}]", printable(spec.name), name(spec.dtype), fmt::join(spec.shape, ", "));
}

}  // namespace crest
