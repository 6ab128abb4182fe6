#include "compare/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/text.h"
#include "profile/class_label.h"

namespace crest {

namespace {

using Rows = std::vector<ProfileInstr>;

// Labels for the scopes of Crest's models, in the order of a step. Other scopes keep their name.
constexpr struct {
  const char *role, *label;
} labels[] = {
    {"wte", "token embedding"},
    {"wpe", "position embedding"},
    {"ln_emb", "embedding norm"},
    {"ln_1", "norm 1"},
    {"attn.qkv", "attention qkv"},
    {"attn", "attention"},
    {"attn.proj", "attention projection"},
    {"attn.residual", "attention residual"},
    {"attn.rope", "rotary embedding"},
    {"ln_2", "norm 2"},
    {"mlp.fc", "MLP in"},
    {"mlp.gate", "MLP gate"},
    {"mlp.up", "MLP up"},
    {"mlp.act", "MLP activation"},
    {"mlp.proj", "MLP out"},
    {"mlp.residual", "MLP residual"},
    {"ln_f", "final norm"},
    {"lm_head", "output head"},
    {"loss", "loss"},
    {"data_parallel", "gradient all-reduce"},
    {"update", "optimizer"},
};

std::string parent(const std::string& role) {
  size_t dot = role.rfind('.');
  return dot == std::string::npos ? "" : role.substr(0, dot);
}

// Position in the table; nested roles share the position of their parent.
size_t place_of(const std::string& role) {
  for (size_t i = 0; i < std::size(labels); ++i)
    if (role == labels[i].role) return i;
  std::string around = parent(role);
  return around.empty() ? std::size(labels) : place_of(around);
}

std::string label_of(const std::string& role) {
  size_t i = place_of(role);
  if (i == std::size(labels)) return role;
  std::string known = labels[i].role;
  return labels[i].label + (role == known ? "" : " " + role.substr(known.size() + 1));
}

// The rows of one step with the same role and phase.
struct Node {
  std::string role, phase;
  bool on[2] = {false, false};
  std::set<std::string> classes;
  bool single() const { return on[0] != on[1]; }
};

class ScopeJoin {
 public:
  ScopeJoin(const Rows& a, const Rows& b) : rows_{&a, &b} {
    for (int side = 0; side < 2; ++side)
      for (auto& row : *rows_[side]) place(row, side);
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (nodes_[n].single() && !match_enclosing(n)) match_sibling(n);
    for (size_t n = 0; n < nodes_.size(); ++n) match_phases(n);
  }

  std::vector<JoinedGroup> groups() {
    std::map<size_t, size_t> index;
    std::vector<JoinedGroup> list;
    std::vector<std::set<std::string>> phases;
    for (int side = 0; side < 2; ++side)
      for (size_t r = 0; r < rows_[side]->size(); ++r) {
        size_t root = find(first_[side][r]);
        auto [it, added] = index.emplace(root, list.size());
        if (added) list.emplace_back();
        (side ? list[it->second].b : list[it->second].a).push_back(int(r));
      }
    phases.resize(list.size());
    for (size_t n = 0; n < nodes_.size(); ++n) {
      size_t g = index.at(find(n));
      auto& roles = list[g].roles;
      if (std::find(roles.begin(), roles.end(), nodes_[n].role) == roles.end()) roles.push_back(nodes_[n].role);
      phases[g].insert(nodes_[n].phase);
    }
    auto in_order = [](auto& x, auto& y) { return place_of(x) < place_of(y); };
    for (auto& g : list) std::stable_sort(g.roles.begin(), g.roles.end(), in_order);
    for (size_t g = 0; g < list.size(); ++g) {
      list[g].label = role_label(list[g].roles);
      list[g].phase = phase_text(phases[g]);
    }
    return list;
  }

 private:
  static std::string phase_text(const std::set<std::string>& phases) {
    std::vector<std::string> names;
    for (const char* known : {"forward", "recompute", "backward", "update"})
      if (phases.count(known)) names.push_back(known);
    for (auto& p : phases)
      if (!p.empty() && std::find(names.begin(), names.end(), p) == names.end()) names.push_back(p);
    return join(names, " + ");
  }

  void place(const ProfileInstr& row, int side) {
    std::vector<std::string> roles;
    // One flat update covers all parameters, so its parts are always one group.
    if (row.phase == "update")
      roles = {"update"};
    else
      for (auto& scope : row.scopes) roles.push_back(role_of(scope));
    if (roles.empty()) roles = {fmt::format("({})", row.op_class)};
    size_t first = node(roles[0], row.phase);
    for (auto& role : roles) {
      size_t n = node(role, row.phase);
      nodes_[n].on[side] = true;
      nodes_[n].classes.insert(row.op_class);
      unite(first, n);
    }
    first_[side].push_back(first);
  }

  size_t node(const std::string& role, const std::string& phase) {
    auto [it, added] = index_.emplace(std::pair{role, phase}, nodes_.size());
    if (added) {
      nodes_.push_back({});
      nodes_.back().role = role, nodes_.back().phase = phase;
      up_.push_back(up_.size());
    }
    return it->second;
  }
  size_t find(size_t n) {
    while (up_[n] != n) n = up_[n] = up_[up_[n]];
    return n;
  }
  void unite(size_t x, size_t y) { up_[find(y)] = find(x); }

  // The nearest enclosing scope on the other side.
  bool match_enclosing(size_t n) {
    for (std::string role = parent(nodes_[n].role); !role.empty(); role = parent(role)) {
      auto it = index_.find({role, nodes_[n].phase});
      if (it == index_.end() || !nodes_[it->second].on[nodes_[n].on[0] ? 1 : 0]) continue;
      unite(it->second, n);
      return true;
    }
    return false;
  }

  // Rows only on the other side, with the same scope and class of operation.
  void match_sibling(size_t n) {
    std::string scope = parent(nodes_[n].role);
    if (scope.empty()) return;
    for (size_t m = 0; m < nodes_.size(); ++m) {
      const Node &x = nodes_[n], &y = nodes_[m];
      if (!y.single() || y.on[0] == x.on[0] || y.phase != x.phase || parent(y.role) != scope) continue;
      bool shared = std::any_of(x.classes.begin(), x.classes.end(), [&](auto& c) { return y.classes.count(c) > 0; });
      if (shared) unite(m, n);
    }
  }

  // A side with forward and backward fused (the fused loss) matches both phases of the other.
  void match_phases(size_t n) {
    if (nodes_[n].phase != "forward") return;
    auto it = index_.find({nodes_[n].role, "backward"});
    if (it == index_.end()) return;
    const Node &forward = nodes_[n], &backward = nodes_[it->second];
    if (forward.on[0] && forward.on[1] && backward.single()) unite(n, it->second);
  }

  const Rows* rows_[2];
  std::map<std::pair<std::string, std::string>, size_t> index_;
  std::vector<Node> nodes_;
  std::vector<size_t> up_;        // union-find
  std::vector<size_t> first_[2];  // the first node of each row
};

bool has_scopes(const Rows& rows) {
  size_t with = 0;
  for (auto& r : rows) with += !r.scopes.empty();
  return 2 * with > rows.size();
}

bool has_phases(const Rows& rows) {
  std::set<std::string> phases;
  for (auto& r : rows) phases.insert(r.phase);
  return phases.count("backward") > 0;
}

template <class Key>
std::vector<JoinedGroup> join_by(const Rows& a, const Rows& b, Key key) {
  std::map<std::pair<std::string, std::string>, size_t> index;
  std::vector<JoinedGroup> list;
  for (int side = 0; side < 2; ++side) {
    const Rows& rows = side ? b : a;
    for (size_t r = 0; r < rows.size(); ++r) {
      std::pair<std::string, std::string> k = key(rows[r]);
      auto [it, added] = index.emplace(k, list.size());
      if (added) list.push_back({k.first, k.second, {}, {}, {}});
      (side ? list[it->second].b : list[it->second].a).push_back(int(r));
    }
  }
  return list;
}

}  // namespace

std::string role_of(const std::string& scope) {
  if (!scope.starts_with("h.")) return scope;
  size_t end = scope.find_first_not_of("0123456789", 2);
  return end == std::string::npos || end == 2 || scope[end] != '.' ? scope : scope.substr(end + 1);
}

std::string role_label(const std::vector<std::string>& roles) {
  std::vector<std::string> names;
  for (auto& role : roles) {
    bool inside = false;  // nested in another role of the set: attn.softmax in attn
    for (std::string around = parent(role); !around.empty(); around = parent(around))
      inside |= std::find(roles.begin(), roles.end(), around) != roles.end();
    if (inside) continue;
    std::string name = label_of(role);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  constexpr size_t shown = 3;
  if (names.size() <= shown) return join(names, " + ");
  std::string rest = fmt::format(" + {} more", names.size() - shown);
  names.resize(shown);
  return join(names, " + ") + rest;
}

Join join_rows(const Rows& a, const Rows& b, GroupBy by) {
  if (by == GroupBy::layer)
    return {"layers", join_by(a, b, [](auto& r) {
              return std::pair{r.layer < 0 ? std::string("outside the layers") : fmt::format("layer {}", r.layer),
                               std::string()};
            })};
  if (by == GroupBy::scope && has_scopes(a) && has_scopes(b)) return {"scopes", ScopeJoin(a, b).groups()};
  if (has_phases(a) == has_phases(b))
    return {"classes and phases", join_by(a, b, [](auto& r) { return std::pair{class_label(r.op_class), r.phase}; })};
  return {"classes", join_by(a, b, [](auto& r) { return std::pair{class_label(r.op_class), std::string()}; })};
}

}  // namespace crest
