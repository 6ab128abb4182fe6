// Matches instructions of two steps by their role in the model.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.h"
#include "profile/profile.h"

namespace crest {

struct JoinedGroup {
  std::string label, phase;
  std::vector<std::string> roles;  // scopes without layer numbers; empty if joined by class or layer
  std::vector<int> a, b;           // rows
};

struct Join {
  std::string how;  // "scopes", "classes", "classes and phases", "layers"
  std::vector<JoinedGroup> groups;
};

// Every row of both lists is in exactly one group. By scope: rows with the same scope and phase
// form one group (fused and unfused). A group found on one side only is matched with the nearest
// enclosing scope (h.3.attn.softmax of naive attention with h.3.attn of flash), or with a sibling
// of the same class found only on the other side (mlp.fc with mlp.gate and mlp.up). Layers are
// merged, so models of different depth can be compared. A side without scopes (an imported trace)
// is matched by class of operation, and by phase if both sides record it.
Join join_rows(const std::vector<ProfileInstr>& a, const std::vector<ProfileInstr>& b, GroupBy by);

// "attn.softmax" of "h.3.attn.softmax".
std::string role_of(const std::string& scope);
// "attention", "MLP up + activation": the label of a set of roles.
std::string role_label(const std::vector<std::string>& roles);

}  // namespace crest
