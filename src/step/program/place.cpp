#include "program/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace crest {

namespace {

// A named dimension: a letter, or '.' and the index among the leading dimensions.
struct Label {
  char letter = 0;
  int leading = 0;
  bool operator==(const Label&) const = default;
  explicit operator bool() const { return letter != 0; }
};

// All tokens, in chunks.
constexpr Label tokens_in_chunks = {'#', 0};

// A cut dimension: plainly, as queries, keys and values, or in chunks.
struct Cut {
  Label label;
  int64_t queries = 0, chunk = 0;
  int dim = 0;  // in the operand that says so
  explicit operator bool() const { return bool(label); }
};

bool is_small(char token) { return islower(static_cast<unsigned char>(token)); }
char large(char token) { return char(toupper(static_cast<unsigned char>(token))); }

struct Operand {
  std::string tokens;  // '.': all leading dimensions; else one for each dimension
  bool replicated() const { return tokens == "-"; }
  bool free() const { return tokens == "~"; }
  bool has(char token) const { return tokens.find(token) != std::string::npos; }
  int leading(const Value& v) const { return v.shape.rank() - int(tokens.size()) + 1; }

  Label label(const Value& v, int dim) const {
    int first = 0;
    if (has('.')) {
      if (dim < leading(v)) return {'.', dim};
      first = leading(v) - 1;
    }
    auto at = size_t(dim - first);
    if (at >= tokens.size() || tokens.find('_') <= at || tokens[at] == '1') return {};
    return tokens[at] == '*' ? Label{'.', 0} : Label{large(tokens[at]), 0};
  }
  // The dimension with the tokens of all sequences; -1: none. like: that of another operand.
  int token_dim(const Value& v, int like) const {
    if (has('.')) return tokens.size() == 1 ? like : leading(v) - 1;
    if (has('*')) return tokens == "*_" && v.shape.rank() > 2 ? 1 : int(tokens.find('*'));
    const size_t at = tokens.find('T');
    return at == std::string::npos ? -1 : int(at);
  }
  bool has_tokens(const Value& v, int dim) const {
    return dim == token_dim(v, dim) || (tokens == "*_" && dim < std::min(2, v.shape.rank()));
  }
  // Whether the dimension of a letter holds queries, keys and values.
  bool fuses(char letter) const { return has(char(tolower(static_cast<unsigned char>(letter)))); }
  // The dimension with a label; -1: none.
  int dim(const Value& v, Label label) const {
    for (int d = 0; d < v.shape.rank(); ++d)
      if (this->label(v, d) == label) return d;
    return -1;
  }
};

struct Rule {
  std::vector<Operand> in, out;
  std::string cut, summed;   // letters, '.' for the leading dimensions
  std::string own, same;     // marked with @ and =
  bool only_chunks = false;  // T is marked with %
  std::string fused;         // letters of dimensions with queries, keys and values
  bool linear = false;
};

std::vector<Operand> operands(std::string_view text) {
  std::vector<Operand> list(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') {
      list.emplace_back();
    } else if (text[i] != ' ') {
      list.back().tokens += text[i];
      if (text[i] == '.') ++i;
    }
  }
  return list;
}

Rule parse(std::string_view text) {
  size_t arrow = text.find("->"), end = std::min(text.find(';'), text.size());
  Rule rule;
  rule.in = operands(text.substr(0, arrow)), rule.out = operands(text.substr(arrow + 2, end - arrow - 2));
  for (char c : text.substr(0, end))
    if (is_small(c)) rule.fused += large(c);
  std::string_view how = text.substr(end);
  if (size_t at = how.find("linear"); at != std::string_view::npos) rule.linear = true, how = how.substr(0, at);
  for (char c : how) {
    if (c == '+') rule.summed += rule.cut.back();
    if (c == '@') rule.own += rule.cut.back();
    if (c == '=') rule.same += rule.cut.back();
    if (c == '%') rule.only_chunks = true;
    if (isupper(static_cast<unsigned char>(c)) || (c == '.' && !rule.cut.ends_with('.'))) rule.cut += c;
  }
  return rule;
}

const Rule& rule_of(const Program& p, const Instr& instr) {
  thread_local std::unordered_map<const char*, Rule> parsed;
  const char* text = instr.op->place(p, instr);
  auto it = parsed.find(text);
  return it != parsed.end() ? it->second : parsed.emplace(text, parse(text)).first->second;
}

const Operand& operand(const std::vector<Operand>& list, size_t i) { return list[std::min(i, list.size() - 1)]; }

class Placing {
 public:
  Placing(const Program& p, const Instr& instr, Axis axis)
      : p_(p),
        instr_(instr),
        rule_(rule_of(p, instr)),
        own_axis_(instr.attrs.has("axes") && axes_of(instr).has(axis)),
        in_chunks_(rule_.only_chunks && axis == Axis::context && own_axis_),
        counts_samples_(axis != Axis::data && instr.attrs.number("p", 0) > 0),
        summand_(instr.in.size(), -1) {
    for (auto& a : instr.op->accumulators)
      if (has(size_t(a.in)) && size_t(a.out) < instr.out.size()) summand_[size_t(a.in)] = a.out;
  }

  std::string run(const std::vector<Placement>& in, std::vector<Placement>& out) const {
    Cut cut;
    size_t by = 0;
    bool partial = false;
    for (size_t i = 0; i < instr_.in.size(); ++i) {
      if (!has(i) || summand_[i] >= 0) continue;
      if (in[i].kind == Placement::Kind::absent) return fmt::format("reads %{}, which holds nothing", name(i));
      if (spec(i).free() || in[i].replicated()) continue;
      if (in[i].kind == Placement::Kind::partial && rule_.linear && !spec(i).replicated()) {
        partial = true;
        continue;
      }
      if (in[i].kind == Placement::Kind::partial)
        return fmt::format("uses %{}, whose sum over the ranks is missing", name(i));
      if (spec(i).replicated() || in[i].kind == Placement::Kind::own)
        return fmt::format("needs all of %{}, which is {}", name(i), text(in[i]));
      Cut own = {label(i, in[i]), in[i].queries, in[i].chunk, in[i].dim};
      if (rule_.fused.find(own.label.letter) != std::string::npos) own.queries = queries();
      if (!may_cut(own.label))
        return fmt::format("cannot be computed with %{} in the parts of {}", name(i), text(in[i]));
      if (cut && (!(cut.label == own.label) || cut.chunk != own.chunk))
        return fmt::format("has parts of %{} and %{} that do not match", name(by), name(i));
      if (!cut) cut = own, by = i;
    }
    if (in_chunks_ && !cut.chunk) return "has all tokens, but counts from its own chunks";
    if (cut && counts_samples_ && !own_axis_)
      return fmt::format("drops elements of %{} as if it had all of a sample", name(by));
    if (partial && cut) return fmt::format("mixes partial sums with parts of %{}", name(by));
    const bool counts_parts = own_axis_ && !in_chunks_ && !rule_.own.empty();
    if (counts_parts && !cut) cut.label = {rule_.own[0]};
    if (counts_parts && !marked(rule_.own, cut))
      return fmt::format("has parts of %{}, but counts from its own part of another dimension", name(by));
    for (size_t i = 0; i < instr_.in.size(); ++i)
      if (has(i) && summand_[i] < 0 && !spec(i).free() && !spec(i).replicated() &&
          !(in[i] == wanted(i, cut, partial, in[i].dim)))
        return fmt::format("%{} is {}, not {}", name(i), text(in[i]), text(wanted(i, cut, partial)));
    out.clear();
    for (size_t o = 0; o < instr_.out.size(); ++o) out.push_back(result(o, cut, partial, in));
    for (size_t i = 0; i < instr_.in.size(); ++i)
      if (summand_[i] >= 0 && !(in[i] == out[size_t(summand_[i])]))
        return fmt::format("adds what is {} to %{}, which is {}", text(out[size_t(summand_[i])]), name(i), text(in[i]));
    return "";
  }

  // Of operations that compute each row alone, from the same rows of all inputs.
  std::string take_piece(std::vector<Placement>& in, int& piece) const {
    for (size_t i = 0; i < instr_.in.size(); ++i)
      if (has(i)) piece = std::max(piece, int(in[i].piece));
    if (piece < 0) return "";
    for (size_t i = 0; i < instr_.in.size(); ++i) {
      if (!has(i)) continue;
      const bool rows = !spec(i).free() && (spec(i).has('.') || spec(i).has('*'));
      if (in[i].piece != (rows ? piece : -1))
        return fmt::format("needs {} of %{}, which is {}", rows ? fmt::format("piece {}", piece) : "all rows", name(i),
                           text(in[i]));
      in[i].piece = -1;
    }
    const bool by_rows = rule_.cut.find('.') != std::string::npos && !marked(rule_.own, {{'.'}}) && !counts_samples_;
    return by_rows ? "" : fmt::format("needs all rows, but has piece {}", piece);
  }
  std::string give_piece(std::vector<Placement>& out, int piece) const {
    for (size_t o = 0; o < out.size(); ++o) {
      const Operand& spec = operand(rule_.out, o);
      if (spec.free() || !(spec.has('.') || spec.has('*'))) return fmt::format("sums over the rows of piece {}", piece);
      out[o].piece = int8_t(piece);
    }
    return "";
  }

  std::vector<std::vector<Placement>> cuts() const {
    std::vector<std::vector<Placement>> all;
    std::vector<Label> seen;
    auto add = [&](Cut cut, bool partial) {
      if (rule_.fused.find(cut.label.letter) != std::string::npos) cut.queries = queries();
      std::vector<Placement> in, out;
      for (size_t i = 0; i < instr_.in.size(); ++i) in.push_back(has(i) ? wanted(i, cut, partial) : Placement());
      for (size_t o = 0; o < instr_.out.size(); ++o) out.push_back(result(o, cut, partial, in));
      for (size_t i = 0; i < in.size(); ++i)
        if (summand_[i] >= 0) in[i] = out[size_t(summand_[i])];
      if (run(in, out).empty()) all.push_back(in);
    };
    for (size_t i = 0; i < instr_.in.size(); ++i)
      for (int d = 0; has(i) && summand_[i] < 0 && d < value(i).shape.rank(); ++d)
        if (Label label = spec(i).label(value(i), d);
            may_cut(label) && std::find(seen.begin(), seen.end(), label) == seen.end())
          seen.push_back(label), add({label}, false);
    if (own_axis_ && !rule_.own.empty() && std::find(seen.begin(), seen.end(), Label{rule_.own[0]}) == seen.end())
      add({Label{rule_.own[0]}}, false);
    if (rule_.linear) add({}, true);
    return all;
  }

 private:
  bool has(size_t i) const { return i < instr_.in.size() && instr_.in[i] != no_value; }
  const Value& value(size_t i) const { return p_.at(instr_.in[i]); }
  const std::string& name(size_t i) const { return value(i).name; }
  const Operand& spec(size_t i) const { return operand(rule_.in, i); }

  bool marked(const std::string& letters, const Cut& cut) const {
    return letters.find(letter(cut.label)) != std::string::npos;
  }
  // In the rule.
  char letter(Label label) const {
    if (!(label == tokens_in_chunks)) return label.letter;
    return rule_.cut.find('.') != std::string::npos ? '.' : 'T';
  }
  Label label(size_t i, Placement at) const {
    if (at.chunk == 0) return spec(i).label(value(i), at.dim);
    return spec(i).has_tokens(value(i), at.dim) ? tokens_in_chunks : Label{};
  }

  bool may_cut(Label label) const {
    if (!label || rule_.cut.find(letter(label)) == std::string::npos) return false;
    if (label == tokens_in_chunks) return !rule_.only_chunks || in_chunks_;
    if (rule_.only_chunks && label.letter == 'T') return false;
    if (marked(rule_.own, {label}) && !own_axis_) return false;
    if (label.letter != '.' || label.leading == 0) return true;
    // Rows in one dimension can only be cut by the first; and all must have the same dimensions.
    int count = -1;
    auto fits = [&](const Operand& spec, const Value& v) {
      if (spec.has('*')) return false;
      if (spec.has('.') && count >= 0 && count != spec.leading(v)) return false;
      if (spec.has('.')) count = spec.leading(v);
      return true;
    };
    for (size_t i = 0; i < instr_.in.size(); ++i)
      if (has(i) && !fits(spec(i), value(i))) return false;
    for (size_t o = 0; o < instr_.out.size(); ++o)
      if (!fits(operand(rule_.out, o), p_.at(instr_.out[o]))) return false;
    return true;
  }

  // Query heads of a key head.
  int64_t queries() const {
    if (instr_.attrs.has("kv_heads")) return instr_.attrs.integer("heads") / instr_.attrs.integer("kv_heads");
    return value(0).shape[1] / value(1).shape[1];  // join_heads: q[B,H,T,D], k
  }

  Placement shard(const Operand& spec, int dim, const Cut& cut) const {
    if (cut.chunk) return Placement::chunks(dim, cut.chunk);
    const bool whole = rule_.fused.find(cut.label.letter) != std::string::npos && !spec.fuses(cut.label.letter);
    return Placement::heads(dim, whole ? 0 : cut.queries);
  }

  // dim: of the tokens, where the operand may have either of two.
  Placement wanted(size_t i, const Cut& cut, bool partial, int dim = 0) const {
    if (spec(i).free() || spec(i).replicated()) return {};
    if (partial) return Placement::partial();
    int d = cut ? dim_of(spec(i), value(i), cut) : -1;
    if (cut.chunk && d >= 0 && spec(i).has_tokens(value(i), dim)) d = dim;
    return d < 0 ? Placement() : shard(spec(i), d, cut);
  }

  static int dim_of(const Operand& spec, const Value& v, const Cut& cut) {
    return cut.chunk ? spec.token_dim(v, cut.dim) : spec.dim(v, cut.label);
  }

  Placement result(size_t o, const Cut& cut, bool partial, const std::vector<Placement>& in) const {
    const Operand& spec = operand(rule_.out, o);
    const Value& v = p_.at(instr_.out[o]);
    if (spec.free()) {
      for (size_t i = 0; i < instr_.in.size(); ++i)
        if (has(i) && value(i).layout.storage == v.layout.storage && !(cut && in[i].replicated())) return in[i];
      return cut ? Placement::own() : Placement();
    }
    if (partial) return Placement::partial();
    if (!cut || spec.replicated()) return {};
    int d = dim_of(spec, v, cut);
    if (d >= 0) return shard(spec, d, cut);
    if (marked(rule_.same, cut)) return {};
    return marked(rule_.summed, cut) ? Placement::partial() : Placement::own();
  }

  const Program& p_;
  const Instr& instr_;
  const Rule& rule_;
  const bool own_axis_;        // one of the instruction's attribute
  const bool in_chunks_;       // the kernel uses the places of its chunks along this axis
  const bool counts_samples_;  // dropout: begins anew with each sample; along data samples are whole
  std::vector<int> summand_;   // of an accumulator input: the output in which it is summed
};

}  // namespace

std::string place(const Program& program, const Instr& instr, Axis axis, const std::vector<Placement>& in,
                  std::vector<Placement>& out) {
  const Placing placing(program, instr, axis);
  std::vector<Placement> all = in;  // as if of all rows
  int piece = -1;
  if (std::string no = placing.take_piece(all, piece); !no.empty()) return no;
  if (std::string no = placing.run(all, out); !no.empty() || piece < 0) return no;
  return placing.give_piece(out, piece);
}

std::vector<std::vector<Placement>> cuts_of(const Program& program, const Instr& instr, Axis axis) {
  return Placing(program, instr, axis).cuts();
}

}  // namespace crest
