// Figures of an experiment's measurements: a sweep as lines, anything else as bars.
#pragma once
#include <string>
#include <vector>

#include "lab/table.h"
#include "report/page.h"

namespace crest::lab {

// The name of a column in words: "planned memory", "tokens/s", "update ms".
std::string column_words(const std::string& column);

// Keys for naming every row, without keys that follow from earlier keys.
std::vector<std::string> naming_keys(const std::vector<Row>& rows);

// A figure of the first of these columns with different values; none with fewer than two
// measurements.
void add_measurements_figure(std::vector<PageBlock>& blocks, const std::vector<Row>& rows,
                             const std::vector<std::string>& columns);

}  // namespace crest::lab
