// How a page looks.
#pragma once
#include <string>

namespace crest {

// Widths in pixels that figures are drawn for: on a screen or paper, on a phone.
inline constexpr double wide_figure = 880, narrow_figure = 352;

std::string page_css();

}  // namespace crest
