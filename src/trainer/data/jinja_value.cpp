#include "data/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace crest::jinja {

void refuse(const std::string& problem) { fail(problem); }

const Value* Map::find(std::string_view key) const {
  for (auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

void Map::set(std::string_view key, Value value) {
  for (auto& [name, old] : items)
    if (name == key) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::string(key), std::move(value));
}

const Value* Arguments::get(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Value::Value(const nlohmann::ordered_json& json) : data_(nullptr) {
  if (json.is_boolean()) {
    data_ = json.get<bool>();
  } else if (json.is_number_integer()) {
    data_ = json.get<int64_t>();
  } else if (json.is_number()) {
    data_ = json.get<double>();
  } else if (json.is_string()) {
    *this = Value(json.get<std::string>());
  } else if (json.is_array()) {
    List list;
    for (auto& element : json) list.emplace_back(element);
    *this = Value(std::move(list));
  } else if (json.is_object()) {
    auto map = std::make_shared<Map>();
    for (auto& [key, value] : json.items()) map->items.emplace_back(key, Value(value));
    *this = Value(std::move(map));
  }
}

double Value::as_double() const { return real() ? *real() : integer() ? double(*integer()) : boolean() && *boolean(); }

bool Value::truth() const {
  if (number()) return as_double() != 0;
  if (text()) return !text()->empty();
  if (list()) return !list()->empty();
  if (map()) return map()->writable || !map()->items.empty();
  return function() != nullptr;
}

bool Value::equals(const Value& other) const {
  if (number() && other.number()) {
    if (real() || other.real()) return as_double() == other.as_double();
    auto whole = [](const Value& v) { return v.integer() ? *v.integer() : int64_t(*v.boolean()); };
    return whole(*this) == whole(other);
  }
  if (text() && other.text()) return *text() == *other.text();
  if (list() && other.list())
    return std::ranges::equal(*list(), *other.list(), [](const Value& a, const Value& b) { return a.equals(b); });
  if (map() && other.map()) {
    if (map() == other.map() || map()->writable || other.map()->writable) return map() == other.map();
    return map()->items.size() == other.map()->items.size() && std::ranges::all_of(map()->items, [&](const auto& item) {
             const Value* its = other.map()->find(item.first);
             return its && its->equals(item.second);
           });
  }
  return (none() && other.none()) || (undefined() && other.undefined()) ||
         (function() && function() == other.function());
}

const char* Value::kind() const {
  if (undefined()) return "undefined";
  if (none()) return "None";
  if (boolean()) return "a truth value";
  if (number()) return "a number";
  return text() ? "a text" : list() ? "a list" : map() ? "a dictionary" : "a function";
}

static std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", d);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// A namespace may contain itself.
static void check_printable(const Value& value, int depth) {
  if (value.map() && value.map()->writable) refuse("a namespace has no text");
  if (depth > 100) refuse("too many lists are inside of each other");
}

std::string Value::str() const { return text() ? *text() : undefined() ? "" : repr(); }

std::string Value::repr(int depth) const {
  if (text()) {
    const bool single = text()->find('\'') == std::string::npos || text()->find('"') != std::string::npos;
    std::string out(1, single ? '\'' : '"');
    for (char c : *text()) {
      if (c == '\n')
        out += "\\n";
      else if (c == '\t')
        out += "\\t";
      else if (c == '\r')
        out += "\\r";
      else if (c == '\\' || (c == '\'' && single))
        out += '\\', out += c;
      else
        out += c;
    }
    return out + (single ? '\'' : '"');
  }
  if (boolean()) return *boolean() ? "True" : "False";
  if (integer()) return std::to_string(*integer());
  if (real()) return real_text(*real());
  if (none()) return "None";
  check_printable(*this, depth);
  std::vector<std::string> parts;
  if (list()) {
    for (auto& element : *list()) parts.push_back(element.repr(depth + 1));
    return "[" + join(parts, ", ") + "]";
  }
  if (map()) {
    for (auto& [key, value] : map()->items) parts.push_back(Value(key).repr() + ": " + value.repr(depth + 1));
    return "{" + join(parts, ", ") + "}";
  }
  if (undefined()) return "Undefined";
  refuse("a function has no text");
}

std::string Value::json(int indent, int depth) const {
  if (none()) return "null";
  if (boolean()) return *boolean() ? "true" : "false";
  if (integer()) return std::to_string(*integer());
  if (real()) return real_text(*real());
  if (text()) return nlohmann::json(*text()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (!list() && !map()) refuse(fmt::format("{} cannot be written as JSON", kind()));
  check_printable(*this, depth);
  if (list() ? list()->empty() : map()->items.empty()) return list() ? "[]" : "{}";
  const bool lines = indent >= 0;
  const std::string begin = lines ? "\n" + std::string(size_t(indent * (depth + 1)), ' ') : "",
                    end = lines ? "\n" + std::string(size_t(indent * depth), ' ') : "";
  std::string out(1, list() ? '[' : '{');
  auto separate = [&] { out += (out.size() == 1 ? "" : lines ? "," : ", ") + begin; };
  if (list())
    for (auto& element : *list()) separate(), out += element.json(indent, depth + 1);
  else
    for (auto& [key, value] : map()->items) separate(), out += Value(key).json() + ": " + value.json(indent, depth + 1);
  return out + end + (list() ? ']' : '}');
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const size_t size = first_character(text).size;
    all.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return all;
}

List elements(const Value& value) {
  if (value.list()) return *value.list();
  if (value.undefined()) return {};
  List out;
  if (value.map())
    for (auto& [key, its] : value.map()->items) out.emplace_back(key);
  else if (value.text())
    for (auto c : characters(*value.text())) out.emplace_back(c);
  else
    refuse(fmt::format("{} has no elements", value.kind()));
  return out;
}

bool contains(const Value& container, const Value& element) {
  if (container.text()) {
    if (!element.text()) refuse(fmt::format("'in' looks for {} in a text", element.kind()));
    return container.text()->find(*element.text()) != std::string::npos;
  }
  if (container.map()) return element.text() && container.map()->find(*element.text());
  return std::ranges::any_of(elements(container), [&](const Value& v) { return v.equals(element); });
}

Value attribute(const Value& value, const std::string& name) {
  if (const Undefined* u = value.undefined())
    refuse(fmt::format("'{}' is undefined, so it has no '{}'", printable(u->name), printable(name)));
  if (value.map())
    if (const Value* found = value.map()->find(name)) return *found;
  return Undefined{name};
}

Value item(const Value& value, const Value& key) {
  if (value.undefined() || value.map()) {
    if (!key.text() && value.map()) return Undefined{key.repr()};
    return attribute(value, key.str());
  }
  if ((value.list() || value.text()) && (key.integer() || key.boolean())) {
    const std::vector<std::string_view> all =
        value.text() ? characters(*value.text()) : std::vector<std::string_view>();
    const auto size = int64_t(value.text() ? all.size() : value.list()->size());
    int64_t at = key.integer() ? *key.integer() : int64_t(*key.boolean());
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Undefined{fmt::format("element {}", key.repr())};
    return value.text() ? Value(all[size_t(at)]) : (*value.list())[size_t(at)];
  }
  return Undefined{key.repr()};
}

}  // namespace crest::jinja
