// Names of operation classes for people; data keep those of program/op.h.
#pragma once
#include <string>

namespace crest {

inline std::string class_label(const std::string& op_class) {
  if (op_class == "contraction") return "matmul";
  if (op_class == "normalisation") return "norm";
  if (op_class == "movement") return "copy";
  return op_class;
}

}  // namespace crest
