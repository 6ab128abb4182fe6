#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "program/op.h"
#include "program/text.h"

namespace crest {

namespace {

// Values must be numbered as the printer met them. print() lists values without a producer first,
// so a parsed Program prints the same text although ids may differ.
class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : where_(where) {
    for (auto& l : split(text, '\n')) lines_.push_back(l);
  }

  Program run() {
    Program p;
    next_line();
    expect_word("program");
    p.name = rest();
    parse_block(p, false);
    return p;
  }

 private:
  using Names = std::unordered_map<std::string, ValueId>;

  [[noreturn]] void wrong(const std::string& what) {
    fail(what, fmt::format("{}:{}:{}", where_, line_number_, pos_ + 1), "The line is: " + printable(line_));
  }

  bool next_line() {
    while (line_number_ < lines_.size()) {
      line_ = lines_[line_number_++];
      size_t comment = line_.find("  # ");
      if (comment != std::string::npos) line_.resize(comment);
      pos_ = 0;
      skip();
      if (pos_ < line_.size() && line_[pos_] != '#') return true;
    }
    return false;
  }
  void skip() {
    while (pos_ < line_.size() && line_[pos_] == ' ') ++pos_;
  }
  bool accept(std::string_view token) {
    skip();
    if (line_.compare(pos_, token.size(), token) != 0) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) wrong(fmt::format("'{}' expected", token));
  }
  std::string word() {
    skip();
    size_t start = pos_;
    while (pos_ < line_.size() && (isalnum((unsigned char)line_[pos_]) || strchr("_.:+-", line_[pos_]))) ++pos_;
    if (start == pos_) wrong("a word expected");
    return line_.substr(start, pos_ - start);
  }
  bool accept_word(std::string_view w) {
    size_t at = pos_;
    skip();
    size_t end = pos_ + w.size();
    if (line_.compare(pos_, w.size(), w) == 0 &&
        (end >= line_.size() || !(isalnum((unsigned char)line_[end]) || line_[end] == '_'))) {
      pos_ = end;
      return true;
    }
    pos_ = at;
    return false;
  }
  void expect_word(std::string_view w) {
    if (!accept_word(w)) wrong(fmt::format("'{}' expected", w));
  }
  std::string rest() {
    skip();
    return line_.substr(pos_);
  }
  int64_t integer() {
    skip();
    int64_t x = 0;
    auto [end, ec] = std::from_chars(line_.data() + pos_, line_.data() + line_.size(), x);
    if (ec != std::errc()) wrong("a whole number expected");
    pos_ = size_t(end - line_.data());
    return x;
  }
  double number() {
    skip();
    double x = 0;
    auto [end, ec] = std::from_chars(line_.data() + pos_, line_.data() + line_.size(), x);
    if (ec != std::errc()) wrong("a number expected");
    pos_ = size_t(end - line_.data());
    return x;
  }
  void end_of_line() {
    skip();
    if (pos_ < line_.size()) wrong("end of line expected");
  }
  // Larger sizes would overflow in everything computed from them.
  static constexpr __int128 most = __int128(1) << 56;
  void check_size(const Shape& shape) {
    __int128 elements = 1;
    for (int d = 0; d < shape.rank(); ++d)
      if ((elements *= std::max<int64_t>(shape[d], 1)) > most) wrong("too many elements");
  }
  void check_reach(const Value& v) {
    __int128 last = v.layout.offset;
    for (int d = 0; d < v.shape.rank(); ++d)
      last += __int128(std::max<int64_t>(v.shape[d] - 1, 0)) * v.layout.strides[d];
    for (int d = 0; d < v.shape.rank(); ++d)
      if (v.layout.strides[d] > most) wrong("a stride beyond 2^56");
    if (v.layout.offset < 0 || last > most) wrong("a layout beyond 2^56 elements");
  }
  Shape dims(char close) {
    Shape s;
    if (accept(std::string_view(&close, 1))) return s;
    do {
      if (s.rank() == Shape::max_rank) wrong("more than 6 dimensions");
      s.push_back(integer());
      if (s.back() < 0) wrong("a negative dimension");
    } while (accept(","));
    expect(std::string_view(&close, 1));
    return s;
  }
  std::string value_name() {
    expect("%");
    return word();
  }
  ValueId lookup(const Names& names, const std::string& n) {
    auto it = names.find(n);
    if (it == names.end()) wrong(fmt::format("value %{} is not defined above", printable(n)));
    return it->second;
  }

  // A value may be inside one defined further down: chunks are written before the whole is
  // complete.
  ValueId storage(const Names& names, const std::string& root, ValueId inside) {
    auto it = names.find(root);
    if (it == names.end()) pending_.try_emplace(root, Pending{line_number_, {}}).first->second.inside.push_back(inside);
    return it == names.end() ? inside : it->second;
  }

  Placement placement() {
    Placement p = whole_placement();
    if (!accept("/")) return p;
    const int64_t piece = integer();
    if (piece < 0 || piece > INT8_MAX) wrong("the number of a piece expected");
    return p.rows_of(int(piece));
  }
  Placement whole_placement() {
    expect("=");
    for (Placement p : {Placement(), Placement::partial(), Placement::own(), Placement::absent(), Placement::each()})
      if (accept_word(text(p))) return p;
    const bool heads = accept("heads("), chunks = !heads && accept("chunks(");
    if (!heads && !chunks) expect("shard(");
    Shape at = dims(')');
    if (at.rank() != (heads || chunks ? 2 : 1) || at[0] >= Shape::max_rank) wrong("a dimension expected");
    if (heads && (at[1] < 1 || at[1] > INT16_MAX)) wrong("the queries of a key expected");
    if (chunks && (at[1] < 1 || at[1] > INT32_MAX)) wrong("the tokens of a chunk expected");
    return chunks ? Placement::chunks(int(at[0]), at[1]) : Placement::heads(int(at[0]), heads ? at[1] : 0);
  }

  // NAME TYPE[SHAPE] [ROLE] [LIFETIME] [host] [AXIS=PLACEMENT] [in %ROOT+OFFSET] [strides(..)]
  ValueId value(Program& p, Names& names) {
    auto id = ValueId(p.values.size());
    Value v;
    v.name = value_name();
    std::string t = word();
    auto dtype = parse_dtype(t);
    if (!dtype) wrong(fmt::format("'{}' is not an element type", printable(t)));
    v.dtype = *dtype;
    expect("[");
    v.shape = dims(']');
    check_size(v.shape);
    v.layout = {id, 0, v.shape.contiguous_strides()};
    for (int r = 0; r <= int(Role::output); ++r)
      if (accept_word(name(Role(r)))) v.role = Role(r);
    for (int l = 0; l <= int(Lifetime::persistent); ++l)
      if (accept_word(name(Lifetime(l)))) v.lifetime = Lifetime(l);
    if (accept_word(name(MemorySpace::host))) v.space = MemorySpace::host;
    for (size_t a = 0; a < axis_count; ++a)
      if (accept_word(name(Axis(a)))) v.placement[a] = placement();
    if (accept_word("in")) {
      std::string root = value_name();
      size_t plus = root.rfind('+');
      if (plus == std::string::npos) wrong("'in %STORAGE+OFFSET' expected");
      v.layout.storage = storage(names, root.substr(0, plus), id);
      auto [end, ec] = std::from_chars(root.data() + plus + 1, root.data() + root.size(), v.layout.offset);
      if (ec != std::errc() || end != root.data() + root.size()) wrong("a whole number expected after '+'");
    }
    if (accept_word("piece")) {
      expect("(");
      Shape of = dims(')');
      if (of.rank() != 2 || of[0] >= of[1] || of[1] > INT8_MAX) wrong("'piece(PIECE,PIECES)' expected");
      v.layout.piece = int(of[0]), v.layout.pieces = int(of[1]);
    }
    if (accept_word("strides")) {
      expect("(");
      v.layout.strides = dims(')');
      if (v.layout.strides.rank() != v.shape.rank()) wrong("strides and shape differ in rank");
    }
    check_reach(v);
    if (!names.emplace(v.name, id).second) wrong(fmt::format("value %{} is defined twice", v.name));
    if (auto it = pending_.find(v.name); it != pending_.end()) {
      for (ValueId inside : it->second.inside) p.at(inside).layout.storage = id;
      pending_.erase(it);
    }
    p.values.push_back(std::move(v));
    return id;
  }

  void no_storage_missing() {
    if (pending_.empty()) return;
    auto& [root, pending] = *pending_.begin();
    line_number_ = pending.line, line_ = lines_[line_number_ - 1], pos_ = 0;
    wrong(fmt::format("storage %{} is not defined", printable(root)));
  }

  std::vector<ValueId> name_list(const Names& names) {
    std::vector<ValueId> ids;
    do {
      if (accept("_"))
        ids.push_back(no_value);
      else
        ids.push_back(lookup(names, value_name()));
    } while (accept(","));
    return ids;
  }

  void attr(Attrs& attrs) {
    std::string key = word();
    expect("=");
    skip();
    if (accept("\"")) {
      size_t end = line_.find('"', pos_);
      if (end == std::string::npos) wrong("a closing quote expected");
      attrs.set(key, std::string_view(line_).substr(pos_, end - pos_));
      pos_ = end + 1;
      return;
    }
    size_t end = line_.find_first_of(",}", pos_);
    std::string t = line_.substr(pos_, end == std::string::npos ? end : end - pos_);
    if (t.find_first_of(".enf") == std::string::npos)
      attrs.set(key, integer());
    else
      attrs.set(key, number());
  }

  void attrs(Attrs& attrs) {
    do attr(attrs);
    while (accept(","));
    expect("}");
  }

  void instruction(Program& p, Names& names) {
    Instr instr;
    do instr.out.push_back(value(p, names));
    while (accept(","));
    expect("=");
    std::string op_name = word();
    instr.op = find_op(op_name);
    if (!instr.op) {
      std::vector<std::string> known;
      for (auto* o : all_ops()) known.push_back(o->name);
      wrong(fmt::format("unknown operation '{}'. {}", printable(op_name), did_you_mean(op_name, known)));
    }
    expect("(");
    if (!accept(")")) {
      instr.in = name_list(names);
      expect(")");
    }
    if (accept("{")) attrs(instr.attrs);
    bool phase = false, stream = false;
    for (int i = 0; i <= int(Phase::update); ++i)
      if (!phase && accept_word(name(Phase(i)))) instr.phase = Phase(i), phase = true;
    for (int i = 0; i < stream_count; ++i)
      if (!stream && accept_word(name(Stream(i)))) instr.stream = Stream(i), stream = true;
    if (!phase || !stream) wrong("phase and stream expected");
    expect("@");
    if (pos_ < line_.size() && line_[pos_] != ' ') instr.origin = Origin::parse(word());
    if (accept_word("body")) {
      expect("{");
      end_of_line();
      auto body = std::make_shared<Program>();
      body->name = "body";
      parse_block(*body, true);
      instr.body = body;
    }
    p.code.push_back(std::move(instr));
  }

  void parse_block(Program& p, bool nested) {
    if (nested && depth_++ > 4) wrong("bodies nested too deeply");
    Names names;
    auto outer = std::exchange(pending_, {});
    while (next_line()) {
      if (nested && accept("}")) {
        --depth_;
        no_storage_missing();
        pending_ = std::move(outer);
        return;
      }
      if (accept_word("properties")) {
        expect("{");
        attrs(p.properties);
      } else if (accept_word("param")) {
        Param q;
        q.name = value_name();
        expect("[");
        q.shape = dims(']');
        expect("init(");
        q.init_mean = number();
        expect(",");
        q.init_std = number();
        expect(")");
        q.uniform = accept_word("uniform");
        q.decay = accept_word("decay");
        q.frozen = accept_word("frozen");
        if (accept("lr(")) {
          q.lr_group = int(number());
          expect(",");
          q.lr_factor = number();
          expect(")");
        }
        q.borrowed = accept_word("borrowed");
        q.lent = accept_word("lent");
        if (accept("chunk(")) q.chunk = int(dims(')')[0]);
        p.params.push_back(q);
      } else if (accept_word("value")) {
        value(p, names);
      } else if (accept_word("inputs")) {
        p.inputs = name_list(names);
      } else if (accept_word("outputs")) {
        p.outputs = name_list(names);
      } else {
        instruction(p, names);
      }
      end_of_line();
    }
    if (nested) wrong("'}' expected");
    no_storage_missing();
    for (auto& q : p.params) q.value = lookup(names, q.name);
  }

  std::string where_;
  std::vector<std::string> lines_;
  std::string line_;
  size_t line_number_ = 0, pos_ = 0;
  int depth_ = 0;
  // Storages used before their definition: the line of the use, and the values in them.
  struct Pending {
    size_t line;
    std::vector<ValueId> inside;
  };
  std::map<std::string, Pending> pending_;
};

}  // namespace

Program parse_program(std::string_view text, std::string_view where) { return Parser(text, where).run(); }

}  // namespace crest
