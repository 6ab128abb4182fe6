// Which instructions of two steps do the same for the model.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.h"
#include "profile/profile.h"

namespace crest {

struct JoinedGroup {
  std::string label, phase;
  std::vector<std::string> roles;  // scopes without the layer's number; empty when joined by class or layer
  std::vector<int> a, b;           // rows
};

struct Join {
  std::string how;  // "scopes", "classes", "classes and phases", "layers"
  std::vector<JoinedGroup> groups;
};

// Every row of both lists is in exactly one group. By scope: rows that share a scope and a phase on either side are one
// group (fused and unfused); what is then on one side only is matched with the nearest scope around it (naive
// attention's h.3.attn.softmax with flash's h.3.attn), or with what stands on the other side only beside it and is of
// the same class (mlp.fc with mlp.gate and mlp.up). Layers are joined, so models of different depth can be compared. A
// side without scopes (an imported trace) is joined by operation class, and by phase where both tell it.
Join join_rows(const std::vector<ProfileInstr>& a, const std::vector<ProfileInstr>& b, GroupBy by);

// "attn.softmax" of "h.3.attn.softmax".
std::string role_of(const std::string& scope);
// "attention", "MLP up + activation": what people call a set of roles.
std::string role_label(const std::vector<std::string>& roles);

}  // namespace crest
