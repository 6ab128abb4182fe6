#include "lab/experiment_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "lab/columns.h"

namespace crest::lab {

void fail_formula(const Formula& f, const ExpressionError& e) {
  fail_usage(e.what + (f.name.empty() ? "" : " (in " + printable(f.name) + ")"), place(f, e.at), e.advice);
}

void parse_formula(Formula& f) {
  try {
    f.expression = parse_expression(f.text);
  } catch (const ExpressionError& e) {
    fail_formula(f, e);
  }
}

void check_formula(const Formula& f, const Vocabulary& v) {
  try {
    check_names(f.expression, v);
  } catch (const ExpressionError& e) {
    fail_formula(f, e);
  }
}

namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') lines_.push_back(i + 1);
  }

  Experiment read() {
    toml::table top = parse_toml(text_, file_);
    e_.file = file_, e_.text = std::string(text_);
    known(top, {"name", "title", "question", "source", "shrinks", "machine", "available", "kind", "show", "recipe",
                "scale", "variant", "columns", "quantities", "conditions", "claim", "then"});
    e_.name = required(top, "name"), e_.title = required(top, "title");
    e_.question = text(top, "question"), e_.source = text(top, "source");
    e_.shrinks = text(top, "shrinks"), e_.machine = text(top, "machine");
    e_.unavailable = unavailable(top);
    read_kind(top);
    if (auto* t = table(top, "recipe")) e_.recipe = axes(*t);
    read_scales(top);
    for_each(top, "variant", [&](const toml::table& t) {
      e_.variants.push_back({required(t, "name"), axes_but(t, {"name", "only"}), only(t)});
    });
    e_.columns = formulas(top, "columns"), e_.quantities = formulas(top, "quantities");
    read_conditions(top);
    for_each(top, "claim", [&](const toml::table& t) { e_.claims.push_back(claim(t)); });
    for_each(top, "then", [&](const toml::table& t) { e_.then.push_back(then(t)); });
    if (auto* node = top.get("show")) e_.show = list(*node, "show");
    check();
    return std::move(e_);
  }

 private:
  using Strings = std::vector<std::string>;

  std::string at(const toml::node& node) const {
    auto begin = node.source().begin;
    return fmt::format("{} (line {}, column {})", printable(file_), begin.line, begin.column);
  }
  [[noreturn]] void wrong(const toml::node& node, const std::string& what, const std::string& advice = "") const {
    fail_usage(what, at(node), advice.empty() ? "docs/reference/lab.md describes the file." : advice);
  }

  void known(const toml::table& t, const Strings& keys) const {
    for (auto&& [key, node] : t)
      if (std::find(keys.begin(), keys.end(), std::string(key.str())) == keys.end())
        wrong(node, fmt::format("unknown key '{}'", printable(key.str())),
              did_you_mean(std::string(key.str()), keys) + " Keys here: " + join(keys, ", ") + ".");
  }

  std::string text(const toml::table& t, const char* key) const {
    auto* node = t.get(key);
    if (!node) return "";
    if (!node->is_string()) wrong(*node, fmt::format("{} must be a string", key));
    return node->as_string()->get();
  }
  std::string required(const toml::table& t, const char* key) const {
    std::string value = text(t, key);
    if (value.empty())
      fail_usage(fmt::format("missing key '{}'", key), at(t), "docs/reference/lab.md describes the file.");
    return value;
  }
  const toml::table* table(const toml::table& t, const char* key) const {
    auto* node = t.get(key);
    if (!node) return nullptr;
    if (!node->is_table()) wrong(*node, fmt::format("{} must be a table", key));
    return node->as_table();
  }
  template <class F>
  void for_each(const toml::table& t, const char* key, F f) const {
    auto* node = t.get(key);
    if (!node) return;
    auto* array = node->as_array();
    if (!array) wrong(*node, fmt::format("write [[{}]]", key));
    for (auto& element : *array) {
      if (!element.is_table()) wrong(element, fmt::format("write [[{}]]", key));
      f(*element.as_table());
    }
  }

  // The reason of "no: REASON"; "": available.
  std::string unavailable(const toml::table& t) const {
    std::string said = text(t, "available");
    if (said.empty() || said == "yes") return "";
    if (!said.starts_with("no: ")) wrong(*t.get("available"), "available must be 'yes' or 'no: REASON'");
    return said.substr(4);
  }

  std::string only(const toml::table& t) const {
    std::string place = text(t, "only");
    Strings places = {"", "cpu", "cuda"};
    for (auto& scale : scale_names)
      for (const char* device : {"", ".cpu", ".cuda"}) places.push_back(scale + device);
    if (std::find(places.begin(), places.end(), place) == places.end())
      wrong(*t.get("only"), fmt::format("'{}' is not a scale or device", printable(place)),
            "Write a scale, a device or both: tiny, cpu, tiny.cpu.");
    return place;
  }

  void read_kind(const toml::table& top) {
    std::string word = required(top, "kind");
    Strings all;
    for (auto& k : kinds()) {
      all.emplace_back(k.name);
      if (word == k.name) {
        e_.kind = k.kind;
        return;
      }
    }
    wrong(*top.get("kind"), fmt::format("'{}' is not a kind of experiment", printable(word)),
          did_you_mean(word, all) + " Kinds: " + join(all, ", ") + ".");
  }

  void read_scales(const toml::table& top) {
    auto* scales = table(top, "scale");
    if (!scales) return;
    known(*scales, scale_names);
    for (auto&& [key, node] : *scales) {
      if (!node.is_table()) wrong(node, "a scale must be a table");
      toml::table own = *node.as_table();
      std::string scale(key.str());
      e_.scales.emplace_back(scale, axes_but(own, {"cpu", "cuda"}));
      for (const char* device : {"cpu", "cuda"})
        if (auto* t = table(own, device)) e_.scales.emplace_back(scale + "." + device, axes(*t));
    }
  }

  std::string scalar(const toml::node& node, const std::string& key) const {
    if (auto* s = node.as_string()) return s->get();
    if (auto* i = node.as_integer()) return std::to_string(i->get());
    if (auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
    if (auto* b = node.as_boolean()) return b->get() ? "true" : "false";
    wrong(node, fmt::format("{} must be a string, a number, true, false or a list of these", printable(key)));
  }
  Strings list(const toml::node& node, const std::string& key) const {
    auto* array = node.as_array();
    if (!array) return {scalar(node, key)};
    Strings values;
    for (auto& element : *array) values.push_back(scalar(element, key));
    if (values.empty()) wrong(node, fmt::format("{} is an empty list", printable(key)));
    return values;
  }

  Axes axes(const toml::table& t) const { return axes_but(t, {}); }
  // In file order.
  Axes axes_but(const toml::table& t, const Strings& but) const {
    std::vector<std::pair<std::pair<size_t, size_t>, Axis>> found;
    for (auto&& [key, node] : t) {
      std::string word(key.str());
      if (std::find(but.begin(), but.end(), word) != but.end()) continue;
      found.push_back({{node.source().begin.line, node.source().begin.column}, {word, list(node, word), at(node)}});
    }
    std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.first < b.first; });
    Axes result;
    for (auto& [position, axis] : found) result.push_back(axis);
    return result;
  }

  // The place is the first character inside the quotes.
  Formula formula(const toml::node& node, const std::string& name) const {
    if (!node.is_string()) wrong(node, fmt::format("{} must be a string", printable(name)));
    Formula f;
    f.name = name, f.file = file_, f.text = node.as_string()->get();
    f.line = node.source().begin.line, f.column = node.source().begin.column + 1;
    size_t i = f.line - 1 < lines_.size() ? lines_[f.line - 1] + f.column - 2 : text_.size();
    std::string_view three = text_.substr(std::min(i, text_.size()), 3);
    if (three == "\"\"\"" || three == "'''") {
      f.column += 2;
      if (text_.substr(i + 3, 1) == "\n") ++f.line, f.column = 1;
    }
    parse_formula(f);
    return f;
  }
  Formula formula(const toml::table& t, const char* key) const {
    auto* node = t.get(key);
    if (!node) fail_usage(fmt::format("missing key '{}'", key), at(t), "docs/reference/lab.md describes the file.");
    return formula(*node, key);
  }

  std::vector<Formula> formulas(const toml::table& top, const char* key) const {
    std::vector<Formula> list;
    if (auto* t = table(top, key))
      for (auto&& [name, node] : *t) list.push_back(formula(node, std::string(name.str())));
    std::sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.line < b.line; });
    return list;
  }

  void read_conditions(const toml::table& top) {
    auto* all = table(top, "conditions");
    if (!all) return;
    for (auto&& [key, node] : *all) {
      if (!node.is_table()) wrong(node, "conditions must be tables: [conditions.NAME]");
      const toml::table& t = *node.as_table();
      known(t, {"about", "needs", "where", "available", "evidence", "lacking"});
      Conditions c;
      c.name = std::string(key.str()), c.about = required(t, "about"), c.unavailable = unavailable(t);
      if (t.get("needs")) c.needs = formula(t, "needs");
      if (auto* where = table(t, "where"))
        for (auto& axis : axes(*where)) c.where.push_back({axis.key, join(axis.values, "|"), 0, axis.place});
      if (t.get("evidence")) c.evidence = formula(t, "evidence"), c.lacking = required(t, "lacking");
      e_.conditions.push_back(c);
    }
  }

  // Named conditions of a claim, or just its `needs`.
  Conditions conditions(const toml::table& t) const {
    Conditions of_claim;
    if (t.get("needs")) of_claim.needs = formula(t, "needs");
    std::string named = text(t, "conditions");
    if (named.empty()) return of_claim;
    if (t.get("needs")) wrong(*t.get("needs"), "a claim has conditions or needs, not both");
    Strings names;
    for (auto& c : e_.conditions) {
      if (c.name == named) return c;
      names.push_back(c.name);
    }
    wrong(*t.get("conditions"), fmt::format("no [conditions.{}]", printable(named)), did_you_mean(named, names));
  }

  Claim claim(const toml::table& t) const {
    known(t, {"text", "subject", "source", "quote", "check", "needs", "conditions"});
    Claim c;
    c.text = required(t, "text"), c.subject = required(t, "subject"), c.source = required(t, "source");
    c.quote = text(t, "quote");
    c.check = formula(t, "check");
    c.conditions = conditions(t);
    return c;
  }

  Then then(const toml::table& t) const {
    known(t, {"what", "unit", "source", "document", "here", "conditions"});
    Then n;
    n.what = required(t, "what"), n.unit = text(t, "unit"), n.source = text(t, "source");
    auto* node = t.get("document");
    if (!node || !node->is_number()) fail_usage("document must be a number: the figure of the document", at(t));
    n.document = node->value<double>().value_or(0);
    n.here = formula(t, "here");
    n.conditions = conditions(t);
    return n;
  }

  // Checks every name in every formula before anything is measured.
  void check() const {
    Vocabulary detail = detail_vocabulary(e_.kind), result;
    result.columns = columns_of(e_.kind);
    result.keys = grid_keys();
    detail.names.insert(result.keys.begin(), result.keys.end());
    for (auto& f : e_.columns) {
      check_formula(f, detail);
      detail.names.insert(f.name), result.columns.insert(f.name);
    }
    result.names.insert(device_property_names().begin(), device_property_names().end());
    for (auto& f : e_.quantities) {
      check_formula(f, result);
      result.names.insert(f.name);
    }
    for (auto& c : e_.conditions) check_conditions(c, result);
    for (auto& c : e_.claims) {
      check_formula(c.check, result);
      check_conditions(c.conditions, result);
    }
    for (auto& t : e_.then) check_formula(t.here, result);
    for (auto& column : e_.show)
      if (!result.columns.count(column))
        fail_usage(fmt::format("'{}' is not a column of a {} experiment", printable(column), lab::name(e_.kind)),
                   printable(file_) + ", key show",
                   did_you_mean(column, {result.columns.begin(), result.columns.end()}));
  }

  void check_conditions(const Conditions& c, const Vocabulary& table) const {
    for (auto* f : {&c.needs, &c.evidence})
      if (!f->text.empty()) check_formula(*f, table);
    for (auto& f : c.where)
      if (!table.keys.count(f.key))
        fail_usage(fmt::format("'{}' is not a key of the measurements", printable(f.key)), f.place,
                   did_you_mean(f.key, {table.keys.begin(), table.keys.end()}));
  }

  std::set<std::string> grid_keys() const {
    std::set<std::string> keys = {"status"};
    auto add = [&](const Axes& list) {
      for (auto& a : list) keys.insert(a.key);
    };
    add(e_.recipe);
    for (auto& [name, list] : e_.scales) add(list);
    for (auto& v : e_.variants) add(v.axes), keys.insert("variant");
    return keys;
  }

  std::string_view text_;
  std::string file_;
  std::vector<size_t> lines_ = {0};  // offset of each line
  Experiment e_;
};

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& file) { return Reader(text, file).read(); }

}  // namespace crest::lab
