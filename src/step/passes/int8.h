// Results of pass int8 in a Program.
#pragma once

namespace crest {

// Property of a Program: its number of 8-bit matrices.
inline constexpr const char* int8_weights_property = "int8_weights";

}  // namespace crest
