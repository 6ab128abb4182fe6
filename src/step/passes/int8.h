// What pass int8 made of a Program.
#pragma once

namespace crest {

// A property of a Program: how many of its matrices are of 8 bits.
inline constexpr const char* int8_weights_property = "int8_weights";

}  // namespace crest
