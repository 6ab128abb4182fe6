// A line chart as one self-contained SVG file: no scripts, no fonts, no references; follows the reader's light or dark
// colour scheme.
#pragma once
#include <string>
#include <vector>

#include "report/chart.h"

namespace crest {

// The document. width and height are the view box in pixels; the picture scales to its container.
// Long series are thinned to the lowest and highest point of each pixel column, so spikes stay visible.
std::string line_chart_svg(const std::vector<Series>& series, const ChartOptions& options, int width = 800,
                           int height = 450);

// Text safe inside an element or an attribute; control characters that XML forbids become U+FFFD.
std::string escape_xml(std::string_view text);

// Writes a file by way of a temporary one beside it; fails with the path.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace crest
