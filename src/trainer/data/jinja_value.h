// Values of chat templates in Jinja, with the meaning of Python's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace crest::jinja {

class Value;
struct Arguments;
using List = std::vector<Value>;
using Function = std::function<Value(const Arguments&)>;

// A dictionary with keys in order, a namespace, or the variables of a loop.
struct Map {
  std::vector<std::pair<std::string, Value>> items;
  bool writable = false;  // a namespace
  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};

struct Undefined {
  std::string name;  // for errors
};

// Copies share texts, lists and maps.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined u) : data_(std::move(u)) {}
  Value(std::nullptr_t) : data_(nullptr) {}  // None
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(List list) : data_(std::make_shared<const List>(std::move(list))) {}
  Value(std::shared_ptr<Map> map) : data_(std::move(map)) {}
  Value(Function f) : data_(std::make_shared<const Function>(std::move(f))) {}
  explicit Value(const nlohmann::ordered_json& json);

  // Null: of another kind.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  bool none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* text() const { return pointer<const std::string>(); }
  const List* list() const { return pointer<const List>(); }
  Map* map() const { return pointer<Map>(); }
  const Function* function() const { return pointer<const Function>(); }

  bool number() const { return boolean() || integer() || real(); }
  double as_double() const;  // of a number
  bool truth() const;
  bool equals(const Value& other) const;
  const char* kind() const;  // for errors: "a text"
  // str(value); a text inside of a list or map is quoted, as by repr().
  std::string str() const;
  std::string repr(int depth = 0) const;
  // As json.dumps(value, ensure_ascii=False, indent=indent); indent below 0: None.
  std::string json(int indent = -1, int depth = 0) const;

 private:
  template <class T>
  T* pointer() const {
    auto* p = std::get_if<std::shared_ptr<T>>(&data_);
    return p ? p->get() : nullptr;
  }
  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<Map>, std::shared_ptr<const Function>>
      data_;
};

// Of a call: f(1, x=2).
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // By position or name; null: not given.
  const Value* get(size_t position, std::string_view name) const;
};

// Throws an error without a place: the caller adds it.
[[noreturn]] void refuse(const std::string& problem);

// Of characters: Python indexes texts by them.
std::vector<std::string_view> characters(std::string_view text);

// A filter (behind |), a test (behind `is`), a method of a value.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const std::vector<Value>& arguments);
Value call_method(const Value& object, const std::string& name, const Arguments& arguments);
// value.name and value[key]; undefined where there is none.
Value attribute(const Value& value, const std::string& name);
Value item(const Value& value, const Value& key);
bool contains(const Value& container, const Value& element);
// The elements of a list, the keys of a map, the characters of a text.
List elements(const Value& value);

}  // namespace crest::jinja
