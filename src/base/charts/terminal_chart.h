// A line chart for a terminal: the first series as a line of braille dots (2 x 4 per cell), others
// as markers.
#pragma once
#include <string>
#include <vector>

#include "charts/chart.h"

namespace crest {

// width x height: cells of the whole picture including axes and labels (at least 24 x 5). The text
// has no control sequences unless `color`; every line ends in a newline and is at most `width`
// wide. "" without data.
std::string terminal_chart(const std::vector<Series>& series, const ChartOptions& options, int width = 78,
                           int height = 18, bool color = false);

}  // namespace crest
