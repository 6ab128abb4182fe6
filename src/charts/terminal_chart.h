// A line chart in a terminal: the first series as a line of braille dots (2 x 4 a cell), further ones as markers.
#pragma once
#include <string>
#include <vector>

#include "charts/chart.h"

namespace crest {

// width x height: cells of the whole picture with axes and labels (at least 24 x 5 are used). The text has no control
// sequences unless `color`; every line ends in a newline and is at most `width` wide. "" when nothing can be drawn.
std::string terminal_chart(const std::vector<Series>& series, const ChartOptions& options, int width = 78,
                           int height = 18, bool color = false);

}  // namespace crest
