#include "data/jinja.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/jinja_parse.h"

namespace crest {

namespace jinja {

namespace {

constexpr size_t most_bytes = size_t(8) << 20;  // of the texts made
constexpr int64_t most_steps = 300'000;
constexpr size_t most_read = size_t(256) << 20;  // bytes of values used
constexpr int most_containers = 10'000;          // made, so that none is inside of too many others
constexpr int deepest = 1000;                    // evaluations inside of each other
constexpr int64_t longest_range = 10'000;

constexpr const char* advice =
    "If the conversations have the form of one of Crest's own templates, name it: --chat-template chatml.";

enum class Flow : uint8_t { on, break_loop, continue_loop };

class Rendering {
 public:
  Rendering(const std::string& where, const nlohmann::ordered_json& variables) : where_(where) {
    scopes_.resize(1);
    for (auto& [key, value] : variables.items()) scopes_[0].set(key, Value(value));
    add_functions();
  }

  // A namespace may contain itself.
  ~Rendering() {
    for (auto& map : namespaces_) map->items.clear();
  }
  Rendering(const Rendering&) = delete;

  std::string run(const Block& block) {
    std::string out;
    scopes_.emplace_back();
    write(block, out);
    return out;
  }

 private:
  void add_functions() {
    auto add = [&](const char* name, Function f) { scopes_[0].set(name, Value(std::move(f))); };
    add("raise_exception", [](const Arguments& a) -> Value {
      const Value* said = a.get(0, "message");
      refuse(fmt::format("the template refuses the conversation: {}", said ? printable(said->str()) : ""));
    });
    add("strftime_now", [](const Arguments& a) -> Value {
      const Value* format = a.get(0, "format");
      if (!format || !format->text()) refuse("'strftime_now' needs a text");
      const time_t now = time(nullptr);
      tm local{};
      localtime_r(&now, &local);
      std::array<char, 256> text{};
      return std::string(text.data(), strftime(text.data(), text.size(), format->text()->c_str(), &local));
    });
    auto make_map = [](const Arguments& a, bool writable) {
      auto map = std::make_shared<Map>();
      if (const Value* from = a.get(0, ""); from && from->map()) map->items = from->map()->items;
      for (auto& [name, value] : a.named) map->set(name, value);
      map->writable = writable;
      return map;
    };
    add("namespace", [=, this](const Arguments& a) {
      namespaces_.push_back(make_map(a, true));
      return Value(namespaces_.back());
    });
    add("dict", [=](const Arguments& a) { return Value(make_map(a, false)); });
    add("range", [](const Arguments& a) -> Value {
      int64_t bounds[] = {0, 0, 1};
      if (a.positional.empty() || a.positional.size() > 3) refuse("'range' needs one to three whole numbers");
      for (size_t i = 0; i < a.positional.size(); ++i) {
        if (!a.positional[i].integer()) refuse("'range' needs whole numbers");
        bounds[a.positional.size() == 1 ? 1 : i] = *a.positional[i].integer();
      }
      auto [begin, end, step] = bounds;
      if (step == 0) refuse("the step of 'range' is 0");
      constexpr int64_t farthest = INT64_MAX / 4;
      for (int64_t bound : bounds)
        if (bound < -farthest || bound > farthest) refuse("a 'range' is too long");
      List out;
      for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        out.emplace_back(i);
        if (int64_t(out.size()) > longest_range) refuse("a 'range' is too long");
      }
      return out;
    });
  }

  // An error gets the line of the statement or expression that it came from.
  template <class Action>
  auto at(int line, Action action) {
    try {
      if (++depth_ > deepest) refuse("too many expressions or macros are inside of each other");
      auto result = action();
      --depth_;
      return result;
    } catch (const Error& e) {
      if (!e.where().empty()) throw;
      fail(e.problem(), fmt::format("{}, line {}", where_, line), advice);
    }
  }
  void step() {
    if (++steps_ > most_steps) refuse("it takes too many steps");
  }
  Value made(std::string text) {
    made_ += text.size();
    if (made_ > most_bytes) refuse("its texts are too long");
    return text;
  }
  void print(const std::string& text, std::string& out) {
    made_ += text.size();
    if (made_ > most_bytes) refuse("its texts are too long");
    out += text;
  }

  Flow write(const Block& block, std::string& out) {
    for (auto& statement : block)
      if (Flow flow = at(statement.line, [&] { return write(statement, out); }); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow write(const Statement& s, std::string& out) {
    step();
    switch (s.kind) {
      case Statement::Kind::text: print(s.text, out); break;
      case Statement::Kind::output: print(weighed(value(*s.expression)).str(), out); break;
      case Statement::Kind::block: return write(s.body, out);
      case Statement::Kind::break_loop: return Flow::break_loop;
      case Statement::Kind::continue_loop: return Flow::continue_loop;
      case Statement::Kind::loop: return loop(s, out);
      case Statement::Kind::macro: define(s); break;
      case Statement::Kind::branch:
        if (value(*s.expression).truth()) return write(s.body, out);
        for (auto& [condition, body] : s.branches)
          if (value(*condition).truth()) return write(body, out);
        return write(s.otherwise, out);
      case Statement::Kind::set: assign(s, value(*s.expression)); break;
      case Statement::Kind::set_block: {
        std::string text;
        scopes_.emplace_back();
        write(s.body, text);
        scopes_.pop_back();
        assign(s, made(std::move(text)));
      }
    }
    return Flow::on;
  }

  void assign(const Statement& s, const Value& value) {
    if (!s.target_attribute.empty()) {
      const Value* target = find(s.targets[0]);
      if (!target || !target->map() || !target->map()->writable)
        refuse(fmt::format("'{}' is not a namespace", printable(s.targets[0])));
      target->map()->set(s.target_attribute, value);
      return;
    }
    assign(s.targets, value);
  }
  void assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) return scopes_.back().set(targets[0], value);
    const List parts = elements(value);
    if (parts.size() != targets.size()) refuse(fmt::format("{} values for {} names", parts.size(), targets.size()));
    for (size_t i = 0; i < parts.size(); ++i) scopes_.back().set(targets[i], parts[i]);
  }

  Flow loop(const Statement& s, std::string& out) {
    List all = elements(value(*s.expression));
    if (s.condition) {
      List chosen;
      for (auto& element : all) {
        step();
        scopes_.emplace_back();
        assign(s.targets, element);
        if (value(*s.condition).truth()) chosen.push_back(element);
        scopes_.pop_back();
      }
      all = std::move(chosen);
    }
    if (all.empty()) return write(s.otherwise, out);
    const auto count = int64_t(all.size());
    for (int64_t i = 0; i < count; ++i) {
      step();
      auto map = std::make_shared<Map>();
      map->set("index", i + 1), map->set("index0", i);
      map->set("revindex", count - i), map->set("revindex0", count - i - 1);
      map->set("first", i == 0), map->set("last", i + 1 == count), map->set("length", count);
      map->set("previtem", i > 0 ? all[size_t(i - 1)] : Value(Undefined{"loop.previtem"}));
      map->set("nextitem", i + 1 < count ? all[size_t(i + 1)] : Value(Undefined{"loop.nextitem"}));
      map->set("cycle", Function([i](const Arguments& a) {
                 if (a.positional.empty()) refuse("'loop.cycle' needs values");
                 return a.positional[size_t(i) % a.positional.size()];
               }));
      scopes_.emplace_back();
      scopes_.back().set("loop", Value(std::move(map)));
      assign(s.targets, all[size_t(i)]);
      const Flow flow = write(s.body, out);
      scopes_.pop_back();
      if (flow == Flow::break_loop) break;
    }
    return Flow::on;
  }

  void define(const Statement& s) {
    scopes_.back().set(s.text, Function([this, &s](const Arguments& a) {
                         // It sees the template's own variables, and not its caller's.
                         std::vector<Map> callers(std::make_move_iterator(scopes_.begin() + 2),
                                                  std::make_move_iterator(scopes_.end()));
                         scopes_.resize(2);
                         scopes_.emplace_back();
                         if (a.positional.size() > s.targets.size())
                           refuse(fmt::format("the macro '{}' has fewer parameters", printable(s.text)));
                         for (size_t i = 0; i < s.targets.size(); ++i) {
                           const Value* given = a.get(i, s.targets[i]);
                           scopes_.back().set(s.targets[i], given           ? *given
                                                            : s.defaults[i] ? value(*s.defaults[i])
                                                                            : Value(Undefined{s.targets[i]}));
                         }
                         std::string out;
                         write(s.body, out);
                         scopes_.resize(2);
                         std::ranges::move(callers, std::back_inserter(scopes_));
                         return made(std::move(out));
                       }));
  }

  const Value* find(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;)
      if (const Value* found = scopes_[i].find(name)) return found;
    return nullptr;
  }

  Value value(const Expression& e) {
    return at(e.line, [&] { return value_here(e); });
  }
  Value operand(const Expression& e, size_t i) { return value(*e.operands[i]); }

  Value value_here(const Expression& e) {
    using Kind = Expression::Kind;
    step();
    switch (e.kind) {
      case Kind::literal: return e.value;
      case Kind::name: {
        const Value* found = find(e.name);
        return found ? *found : Value(Undefined{e.name});
      }
      case Kind::list: return counted(arguments(e, 0).positional);
      case Kind::dictionary: {
        auto map = std::make_shared<Map>();
        for (size_t i = 0; i < e.operands.size(); i += 2) map->set(operand(e, i).str(), operand(e, i + 1));
        return counted(map);
      }
      case Kind::unary: return unary(e.name, operand(e, 0));
      case Kind::binary: {
        const Value left = weighed(operand(e, 0)), right = weighed(operand(e, 1));
        return binary(e.name, left, right);
      }
      case Kind::both: {
        Value left = operand(e, 0);
        return left.truth() ? operand(e, 1) : left;
      }
      case Kind::either: {
        Value left = operand(e, 0);
        return left.truth() ? left : operand(e, 1);
      }
      case Kind::condition:
        if (operand(e, 1).truth()) return operand(e, 0);
        return e.operands.size() > 2 ? operand(e, 2) : Value(Undefined{"else"});
      case Kind::attribute: return attribute(operand(e, 0), e.name);
      case Kind::item: {
        const Value object = operand(e, 0);
        return item(object, operand(e, 1));
      }
      case Kind::slice: return slice(e);
      case Kind::call: return call(e);
      case Kind::filter: {
        const Value subject = weighed(operand(e, 0));
        return counted(apply_filter(e.name, subject, arguments(e, 1)));
      }
      case Kind::test: {
        const Value subject = operand(e, 0);
        return apply_test(e.name, subject, arguments(e, 1).positional) != e.negated;
      }
    }
    return {};
  }

  Value counted(Value v) {
    if ((v.list() || v.map()) && ++containers_ > most_containers) refuse("it makes too many lists");
    if (v.text()) made_ += v.text()->size();
    if (made_ > most_bytes) refuse("its texts are too long");
    return v;
  }

  // Lists share texts: one list may spell far more than was made.
  Value weighed(Value v) {
    size_t left = most_bytes;
    if (!take_weight(v, left)) refuse("its lists are too long");
    read_ += most_bytes - left;
    if (read_ > most_read) refuse("it takes too many steps");
    return v;
  }
  static bool take_weight(const Value& v, size_t& left) {
    const size_t own = 16 + (v.text() ? v.text()->size() : 0);
    if (own > left) return false;
    left -= own;
    if (v.list())
      return std::ranges::all_of(*v.list(), [&](const Value& element) { return take_weight(element, left); });
    if (v.map() && !v.map()->writable)
      return std::ranges::all_of(v.map()->items, [&](const auto& item) { return take_weight(item.second, left); });
    return true;
  }

  Arguments arguments(const Expression& e, size_t begin) {
    Arguments a;
    for (size_t i = begin; i < e.operands.size(); ++i) a.positional.push_back(weighed(operand(e, i)));
    for (auto& [name, expression] : e.named) a.named.emplace_back(name, value(*expression));
    return a;
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.operands[0];
    if (callee.kind == Expression::Kind::attribute) {
      const Value object = weighed(operand(callee, 0));
      const Value* own = object.map() ? object.map()->find(callee.name) : nullptr;
      const Arguments a = arguments(e, 1);
      return counted(own && own->function() ? (*own->function())(a) : call_method(object, callee.name, a));
    }
    const Value f = value(callee);
    if (f.undefined()) refuse(fmt::format("Crest does not know the function '{}'", printable(f.undefined()->name)));
    if (!f.function()) refuse(fmt::format("{} is called like a function", f.kind()));
    return counted((*f.function())(arguments(e, 1)));
  }

  static Value unary(const std::string& name, const Value& v) {
    if (name == "not") return !v.truth();
    if (!v.number()) refuse(fmt::format("'{}' of {}", name, v.kind()));
    if (v.real()) return name == "-" ? -*v.real() : *v.real();
    return whole(name, 0, v.integer() ? *v.integer() : int64_t(*v.boolean()));
  }

  static Value whole(const std::string& name, int64_t a, int64_t b) {
    int64_t result = 0;
    bool over = false;
    if (name == "+") over = __builtin_add_overflow(a, b, &result);
    if (name == "-") over = __builtin_sub_overflow(a, b, &result);
    if (name == "*") over = __builtin_mul_overflow(a, b, &result);
    if (name == "//" || name == "%") {
      if (b == 0) refuse("a division by zero");
      if (b == -1) return name == "%" ? Value(int64_t(0)) : whole("-", 0, a);
      // Python rounds down.
      const int64_t down = a / b - (a % b != 0 && (a < 0) != (b < 0));
      result = name == "//" ? down : a - down * b;
    }
    if (over) refuse("a number is too large");
    return result;
  }

  static Value numbers(const std::string& name, const Value& left, const Value& right) {
    const double a = left.as_double(), b = right.as_double();
    if (name == "<") return a < b;
    if (name == "<=") return a <= b;
    if (name == ">") return a > b;
    if (name == ">=") return a >= b;
    if (name == "**") return left.real() || right.real() || b < 0 ? Value(std::pow(a, b)) : power(a, b);
    if (!left.real() && !right.real() && name != "/") {
      auto integer = [](const Value& v) { return v.integer() ? *v.integer() : int64_t(*v.boolean()); };
      return whole(name, integer(left), integer(right));
    }
    if (name == "+") return a + b;
    if (name == "-") return a - b;
    if (name == "*") return a * b;
    if (b == 0) refuse("a division by zero");
    if (name == "/") return a / b;
    const double down = std::floor(a / b);
    return name == "//" ? down : a - down * b;
  }
  static Value power(double a, double b) {
    const double result = std::pow(a, b);
    if (!(std::abs(result) < 9e15)) refuse("a number is too large");
    return int64_t(result);
  }

  Value binary(const std::string& name, const Value& left, const Value& right) {
    if (name == "==") return left.equals(right);
    if (name == "!=") return !left.equals(right);
    if (name == "in") return contains(right, left);
    if (name == "not in") return !contains(right, left);
    if (name == "~") return made(left.str() + right.str());
    if (left.number() && right.number()) return numbers(name, left, right);
    if (name == "+" && left.text() && right.text()) return made(*left.text() + *right.text());
    if (name == "+" && left.list() && right.list()) {
      List all = *left.list();
      all.insert(all.end(), right.list()->begin(), right.list()->end());
      steps_ += int64_t(all.size());
      return all;
    }
    if (name == "*" && left.text() && right.integer()) {
      if (*right.integer() > 0 && left.text()->size() > most_bytes / size_t(*right.integer()))
        refuse("its texts are too long");
      std::string text;
      for (int64_t i = 0; i < *right.integer() && !left.text()->empty(); ++i) text += *left.text();
      return made(std::move(text));
    }
    if (left.text() && right.text() && (name[0] == '<' || name[0] == '>')) {
      const int order = left.text()->compare(*right.text());
      return name == "<" ? order < 0 : name == "<=" ? order <= 0 : name == ">" ? order > 0 : order >= 0;
    }
    for (const Value* v : {&left, &right})
      if (v->undefined()) refuse(fmt::format("'{}' is undefined", printable(v->undefined()->name)));
    refuse(fmt::format("'{}' of {} and {}", name, left.kind(), right.kind()));
  }

  // As in Python, object[begin:end:step].
  Value slice(const Expression& e) {
    const Value object = operand(e, 0);
    const List all = elements(object);
    if (object.map()) refuse("a slice of a dictionary");
    const auto size = int64_t(all.size());
    auto bound = [&](size_t i) -> std::optional<int64_t> {
      if (!e.operands[i]) return std::nullopt;
      const Value v = operand(e, i);
      if (v.none()) return std::nullopt;
      if (!v.integer()) refuse(fmt::format("{} bounds a slice", v.kind()));
      return std::clamp(*v.integer(), -most_steps, most_steps);
    };
    const int64_t by = bound(3).value_or(1);
    if (by == 0) refuse("the step of a slice is 0");
    auto clipped = [&](std::optional<int64_t> at, int64_t otherwise) {
      if (!at) return otherwise;
      return std::clamp(*at < 0 ? *at + size : *at, by > 0 ? int64_t(0) : int64_t(-1), by > 0 ? size : size - 1);
    };
    const int64_t begin = clipped(bound(1), by > 0 ? 0 : size - 1), end = clipped(bound(2), by > 0 ? size : -1);
    List out;
    for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) out.push_back(all[size_t(i)]);
    if (!object.text()) return out;
    std::string text;
    for (auto& c : out) text += *c.text();
    return made(std::move(text));
  }

  const std::string& where_;
  std::vector<Map> scopes_;  // of functions and variables, of the template, of loops
  std::vector<std::shared_ptr<Map>> namespaces_;
  int64_t steps_ = 0;
  size_t made_ = 0, read_ = 0;
  int depth_ = 0, containers_ = 0;
};

}  // namespace

}  // namespace jinja

struct JinjaTemplate::Parts {
  jinja::Block block;
};

JinjaTemplate::JinjaTemplate(std::string_view source, std::string where) : where_(std::move(where)) {
  try {
    parts_ = std::make_unique<Parts>(Parts{jinja::parse(source, where_)});
  } catch (const Error& e) {
    fail(e.problem(), e.where(), jinja::advice);
  }
}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables) const {
  return jinja::Rendering(where_, variables).run(parts_->block);
}

}  // namespace crest
