// Names of operation classes, in words and as in files.
#pragma once
#include <string>
#include <string_view>

namespace crest {

inline std::string class_label(const std::string& op_class) {
  if (op_class == "contraction") return "matmul";
  if (op_class == "normalization") return "norm";
  if (op_class == "movement") return "copy";
  return op_class;
}

// A class from a file or filter, spelled as in program/op.h. Version 0.1 wrote normalisation.
inline std::string read_op_class(std::string text) {
  constexpr std::string_view old = "normalisation";
  if (size_t at = text.find(old); at != std::string::npos) text.replace(at, old.size(), "normalization");
  return text;
}

}  // namespace crest
