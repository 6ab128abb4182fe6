// The keys of a transformers config.json.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/text.h"
#include "model/config.h"

namespace crest {

// Typed access to the keys of one JSON object. Null means absent, as in transformers.
class Keys {
 public:
  Keys(const nlohmann::json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(const char* key) const {
    auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has_null(const char* key) const {
    auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }
  // The name of the key in use, for a value with two possible keys.
  const char* either(const char* first, const char* otherwise) const { return find(first) ? first : otherwise; }
  int64_t size(const char* key) const {
    auto* v = find(key);
    if (!v)
      fail_usage(fmt::format("'{}{}' is missing", prefix_, key), where_, "Add it; every model of this type has it.");
    return size(key, 0);
  }
  int64_t size(const char* key, int64_t otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_number_integer()) wrong(key, *v, "a whole number");
    if (v->is_number_unsigned() ? v->get<uint64_t>() > uint64_t(1) << 40 : v->get<int64_t>() < 0)
      wrong(key, *v, "between 1 and 2^40");
    if (v->get<int64_t>() < 1) wrong(key, *v, "at least 1");
    return v->get<int64_t>();
  }
  // A size, or 0.
  int64_t count(const char* key, int64_t otherwise) const {
    auto* v = find(key);
    return v && v->is_number_integer() && *v == 0 ? 0 : size(key, otherwise);
  }
  double number(const char* key, double otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_number()) wrong(key, *v, "a number");
    return v->get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_boolean()) wrong(key, *v, "true or false");
    return v->get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_string()) wrong(key, *v, "a string");
    return v->get<std::string>();
  }
  // Rejects a flag if Crest does not support its value.
  void must_be(const char* key, bool expected, const char* reason) const {
    if (flag(key, expected) != expected) fail_usage(fmt::format("'{}' is {}", key, !expected), where_, reason);
  }
  void must_be_absent(const char* key, const char* reason) const {
    if (auto* v = find(key); v && !v->empty()) fail_usage(fmt::format("has '{}'", key), where_, reason);
  }
  bool has(const char* key) const { return find(key) != nullptr; }
  const std::string& where() const { return where_; }
  const nlohmann::json& object() const { return object_; }

 private:
  [[noreturn]] void wrong(const char* key, const nlohmann::json& v, const char* expected) const {
    fail_usage(fmt::format("'{}{}' must be {}, not {}", prefix_, key, expected, shown(v)), where_,
               "Correct the file, or give a preset or a TOML file.");
  }
  static std::string shown(const nlohmann::json& v) {
    return printable(v.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 60);
  }
  const nlohmann::json& object_;
  std::string where_, prefix_;
};

// Keys of the rotation in transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters).
struct RopeKeys {
  double theta = 10000;                  // default without a key
  const char* theta_key = "rope_theta";  // null: theta is in the objects only
  const char* part_key = nullptr;        // key of the rotated part of a head; null: whole heads rotate
  double part = 1;                       // default without a key
};
// Sets all layers, and the context implied by the scaling.
void read_rope(const Keys& file, const RopeKeys& keys, ModelConfig& config);
// For models with one object for each layer type ("full_attention", ...).
void read_rope_of(const Keys& file, const char* layer_type, const RopeKeys& keys, int64_t& context, int64_t head_dim,
                  LayerConfig& layer);
// A layer's rotation as an object of transformers 5.
nlohmann::ordered_json rope_object(const LayerConfig& layer, int64_t head_dim);
double rotated_part(int64_t rotary_dim, int64_t head_dim);
// rope_theta and rope_scaling, without the rotated part.
void write_rope(const ModelConfig& config, nlohmann::ordered_json& out);
int64_t max_position_embeddings(const ModelConfig& config);

}  // namespace crest
