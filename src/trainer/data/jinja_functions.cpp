// Filters, tests and methods of chat templates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/text.h"
#include "data/jinja_value.h"
#include "data/python_text.h"

namespace crest::jinja {

namespace {

constexpr size_t most_spaces = 1000;  // of an indent
constexpr size_t most_made = size_t(8) << 20, most_compared = 1000;

void check_size(size_t bytes) {
  if (bytes > most_made) refuse("its texts are too long");
}

// of: the characters to leave out; null: white space.
std::string_view strip(std::string_view text, const std::string* of, bool left, bool right) {
  if (!of) {
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  const auto all = characters(text), set = characters(*of);
  auto drop = [&](std::string_view c) { return std::ranges::find(set, c) != set.end(); };
  size_t begin = 0, end = all.size();
  while (left && begin < end && drop(all[begin])) ++begin;
  while (right && end > begin && drop(all[end - 1])) --end;
  if (begin == end) return {};
  return {all[begin].data(), size_t(all[end - 1].data() + all[end - 1].size() - all[begin].data())};
}

// Other letters would need Unicode's tables.
const std::string& ascii(const std::string& text, const std::string& name) {
  if (std::ranges::any_of(text, [](char c) { return (static_cast<unsigned char>(c) & 0x80) != 0; }))
    refuse(fmt::format("'{}' of letters beyond ASCII", name));
  return text;
}
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }

std::string with_case(const std::string& given, const std::string& name) {
  std::string text = ascii(given, name);
  bool begins = true;
  for (char& c : text) {
    const bool large = name == "upper" || (begins && name != "lower");
    c = large ? upper(c) : lower(c);
    begins = name == "title" && !is_letter(c);
  }
  return text;
}

std::string replaced_text(const std::string& text, const std::string& from, const std::string& to, int64_t count) {
  if (from.empty()) refuse("'replace' of an empty text");
  std::string out;
  size_t done = 0;
  for (size_t at; count != 0 && (at = text.find(from, done)) != std::string::npos; done = at + from.size(), --count) {
    out.append(text, done, at - done).append(to);
    check_size(out.size());
  }
  return out + text.substr(done);
}

List split_text(const std::string& text, const std::string* separator, int64_t count) {
  List parts;
  if (separator) {
    if (separator->empty()) refuse("'split' by an empty text");
    size_t done = 0;
    for (size_t at; count != 0 && (at = text.find(*separator, done)) != std::string::npos;
         done = at + separator->size(), --count)
      parts.emplace_back(text.substr(done, at - done));
    parts.emplace_back(text.substr(done));
    return parts;
  }
  for (std::string_view rest = strip_left(text); !rest.empty();) {
    size_t end = 0;
    while (end < rest.size() && !is_space_at(rest, end)) end += first_character(rest.substr(end)).size;
    if (count-- == 0) end = rest.size();
    parts.emplace_back(rest.substr(0, end));
    rest = strip_left(rest.substr(end));
  }
  return parts;
}

const std::string& text_of(const Value* value, const std::string& name) {
  if (!value || !value->text())
    refuse(fmt::format("'{}' needs a text, and got {}", name, value ? value->kind() : "nothing"));
  return *value->text();
}
int64_t integer_of(const Value* value, int64_t otherwise, const std::string& name) {
  if (!value) return otherwise;
  if (!value->integer()) refuse(fmt::format("'{}' needs a whole number, and got {}", name, value->kind()));
  return *value->integer();
}

List pairs_of(const Value& value, const std::string& name) {
  if (!value.map()) refuse(fmt::format("'{}' of {}", name, value.kind()));
  List pairs;
  for (auto& [key, its] : value.map()->items) pairs.emplace_back(List{Value(key), its});
  return pairs;
}

int64_t length(const Value& value) {
  if (value.text()) return int64_t(crest::characters(*value.text()));
  if (value.map()) return int64_t(value.map()->items.size());
  return int64_t(elements(value).size());
}

// select, reject, selectattr, rejectattr.
List chosen(const std::string& name, const Value& value, const Arguments& a) {
  const bool by_attribute = name.ends_with("attr"), keep = name.starts_with("select");
  std::vector<Value> rest = a.positional;
  std::string attribute_name, test = "";
  if (by_attribute) attribute_name = text_of(a.get(0, ""), name), rest.erase(rest.begin());
  if (!rest.empty()) test = text_of(rest.data(), name), rest.erase(rest.begin());
  List out;
  for (auto& element : elements(value)) {
    const Value subject = by_attribute ? attribute(element, attribute_name) : element;
    if ((test.empty() ? subject.truth() : apply_test(test, subject, rest)) == keep) out.push_back(element);
  }
  return out;
}

List mapped(const Value& value, const Arguments& a) {
  List out;
  for (auto& element : elements(value)) {
    if (const Value* by = a.get(a.positional.size(), "attribute")) {
      const Value found = attribute(element, text_of(by, "map"));
      const Value* otherwise = a.get(a.positional.size(), "default");
      out.push_back(found.undefined() && otherwise ? *otherwise : found);
    } else {
      Arguments rest = a;
      if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
      out.push_back(apply_filter(text_of(a.get(0, ""), "map"), element, rest));
    }
  }
  return out;
}

Value joined(const Value& value, const Arguments& a) {
  const Value *separator = a.get(0, "d"), *by = a.get(1, "attribute");
  std::vector<std::string> parts;
  for (auto& element : elements(value)) parts.push_back((by ? attribute(element, text_of(by, "join")) : element).str());
  const std::string between = separator ? separator->str() : "";
  check_size(between.size() * parts.size());
  return join(parts, between);
}

Value to_integer(const Value& value) {
  if (value.real()) {
    if (!(std::abs(*value.real()) < 9e18)) refuse("'int' of a number that is too large");
    return int64_t(*value.real());
  }
  if (value.number()) return int64_t(value.as_double());
  return int64_t(value.text() ? std::strtoll(value.text()->c_str(), nullptr, 10) : 0);
}

// As in transformers: tojson(ensure_ascii, indent, separators, sort_keys).
std::string json_text(const Value& value, const Arguments& a) {
  for (auto [position, name] : {std::pair<size_t, const char*>{0, "ensure_ascii"}, {2, "separators"}, {3, "sort_keys"}})
    if (const Value* given = a.get(position, name); given && given->truth())
      refuse(fmt::format("Crest does not know '{}' of 'tojson'", name));
  const Value* indent = a.get(1, "indent");
  return value.json(indent && !indent->none() ? int(std::min<int64_t>(integer_of(indent, -1, "tojson"), 16)) : -1);
}

std::string indented(const std::string& text, const Arguments& a) {
  const int64_t width = integer_of(a.get(0, "width"), 4, "indent");
  if (width < 0 || width > int64_t(most_spaces)) refuse("'indent' by this width");
  const Value *first = a.get(1, "first"), *blank = a.get(2, "blank");
  const std::string spaces(size_t(width), ' ');
  std::vector<std::string> lines = split(text, '\n');
  check_size(lines.size() * spaces.size());
  for (size_t i = 0; i < lines.size(); ++i)
    if (i == 0 ? first && first->truth() : !lines[i].empty() || (blank && blank->truth())) lines[i] = spaces + lines[i];
  return join(lines, "\n");
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& a) {
  if (name == "default" || name == "d") {
    const Value *otherwise = a.get(0, "default_value"), *falsy = a.get(1, "boolean");
    const bool missing = value.undefined() || (falsy && falsy->truth() && !value.truth());
    return !missing ? value : otherwise ? *otherwise : Value("");
  }
  if (name == "length" || name == "count") return length(value);
  if (name == "trim") {
    const Value* of = a.get(0, "chars");
    const std::string text = value.str();
    return strip(text, of && !of->none() ? &text_of(of, name) : nullptr, true, true);
  }
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
    return with_case(value.str(), name);
  if (name == "string" || name == "safe") return value.str();
  if (name == "tojson") return json_text(value, a);
  if (name == "replace")
    return replaced_text(value.str(), text_of(a.get(0, "old"), name), text_of(a.get(1, "new"), name),
                         integer_of(a.get(2, "count"), -1, name));
  if (name == "join") return joined(value, a);
  if (name == "list") return elements(value);
  if (name == "first" || name == "last") {
    const List all = elements(value);
    if (all.empty()) return Undefined{"the " + name + " element"};
    return name == "first" ? all.front() : all.back();
  }
  if (name == "reverse") {
    List all = elements(value);
    std::ranges::reverse(all);
    if (!value.text()) return all;
    return joined(all, {});
  }
  if (name == "unique") {
    List out;
    if (length(value) > int64_t(most_compared)) refuse("'unique' of too many elements");
    for (auto& element : elements(value))
      if (std::ranges::none_of(out, [&](const Value& v) { return v.equals(element); })) out.push_back(element);
    return out;
  }
  if (name == "items") return value.undefined() ? List{} : pairs_of(value, name);
  if (name == "map") return mapped(value, a);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return chosen(name, value, a);
  if (name == "int") return to_integer(value);
  if (name == "float") return value.text() ? std::strtod(value.text()->c_str(), nullptr) : value.as_double();
  if (name == "abs" && value.real()) return std::abs(*value.real());
  if (name == "abs" && value.integer()) {
    if (*value.integer() == INT64_MIN) refuse("a number is too large");
    return std::abs(*value.integer());
  }
  if (name == "indent") return indented(value.str(), a);
  refuse(fmt::format("Crest does not know the filter '{}'", printable(name)));
}

bool apply_test(const std::string& name, const Value& value, const std::vector<Value>& arguments) {
  auto argument = [&]() -> const Value& {
    if (arguments.empty()) refuse(fmt::format("the test '{}' needs a value", name));
    return arguments[0];
  };
  if (name == "defined") return !value.undefined();
  if (name == "undefined") return value.undefined();
  if (name == "none") return value.none();
  if (name == "string") return value.text();
  if (name == "mapping") return value.map();
  if (name == "boolean") return value.boolean();
  if (name == "number") return value.number();
  if (name == "integer") return value.integer();
  if (name == "float") return value.real();
  if (name == "true") return value.boolean() && *value.boolean();
  if (name == "false") return value.boolean() && !*value.boolean();
  if (name == "callable") return value.function();
  if (name == "sequence" || name == "iterable")
    return value.text() || value.list() || value.map() || (name == "iterable" && value.undefined());
  if (name == "odd" || name == "even") return (integer_of(&value, 0, name) % 2 != 0) == (name == "odd");
  if (name == "divisibleby") {
    const int64_t by = integer_of(&argument(), 1, name);
    if (by == 0) refuse("a division by zero");
    return by == -1 || integer_of(&value, 0, name) % by == 0;
  }
  if (name == "eq" || name == "equalto" || name == "==") return value.equals(argument());
  if (name == "ne" || name == "!=") return !value.equals(argument());
  if (name == "in") return contains(argument(), value);
  if (name == "sameas") return value.kind() == argument().kind() && value.equals(argument());
  refuse(fmt::format("Crest does not know the test '{}'", printable(name)));
}

static Value call_text_method(const std::string& text, const std::string& name, const Arguments& a) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* of = a.get(0, "");
    return strip(text, of && !of->none() ? &text_of(of, name) : nullptr, name != "rstrip", name != "lstrip");
  }
  if (name == "split") {
    const Value* by = a.get(0, "sep");
    return split_text(text, by && !by->none() ? &text_of(by, name) : nullptr,
                      integer_of(a.get(1, "maxsplit"), -1, name));
  }
  if (name == "startswith" || name == "endswith") {
    const Value* part = a.get(0, "");
    List any = part && part->list() ? *part->list() : List{part ? *part : Value()};
    return std::ranges::any_of(any, [&](const Value& v) {
      return name == "startswith" ? text.starts_with(text_of(&v, name)) : text.ends_with(text_of(&v, name));
    });
  }
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize") return with_case(text, name);
  if (name == "replace")
    return replaced_text(text, text_of(a.get(0, "old"), name), text_of(a.get(1, "new"), name),
                         integer_of(a.get(2, "count"), -1, name));
  if (name == "find") {
    const size_t at = text.find(text_of(a.get(0, ""), name));
    return at == std::string::npos ? int64_t(-1) : int64_t(crest::characters(text.substr(0, at)));
  }
  if (name == "count") return int64_t(split_text(text, &text_of(a.get(0, ""), name), -1).size()) - 1;
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = text_of(a.get(0, ""), name);
    if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
    return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
  }
  if (name == "join") {
    if (!a.get(0, "")) refuse("'join' needs a list");
    return joined(*a.get(0, ""), {{Value(text)}, {}});
  }
  refuse(fmt::format("Crest does not know the method '{}' of a text", printable(name)));
}

Value call_method(const Value& object, const std::string& name, const Arguments& a) {
  if (object.text()) return call_text_method(*object.text(), name, a);
  if (object.map()) {
    if (name == "items") return pairs_of(object, name);
    if (name == "keys") return elements(object);
    if (name == "values") {
      List values;
      for (auto& [key, value] : object.map()->items) values.push_back(value);
      return values;
    }
    if (name == "get") {
      const Value *key = a.get(0, ""), *otherwise = a.get(1, "");
      const Value* found = key && key->text() ? object.map()->find(*key->text()) : nullptr;
      return found ? *found : otherwise ? *otherwise : Value(nullptr);
    }
  }
  if (object.undefined())
    refuse(fmt::format("'{}' is undefined, so it has no '{}'", printable(object.undefined()->name), printable(name)));
  refuse(fmt::format("Crest does not know the method '{}' of {}", printable(name), object.kind()));
}

}  // namespace crest::jinja
