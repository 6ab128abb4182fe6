// The files of crest report.
#pragma once
#include <string>

#include "report/page.h"

namespace crest {

// Throws if the name ends in neither .html nor .md, and if a file would be lost: only reports are
// replaced, unless `overwrite`.
void check_report_file(const std::string& file, bool overwrite);
// HTML or Markdown, by the name. figures: Markdown's figures, in the folder NAME_files in the same
// place.
void write_report_file(const Page& page, const std::string& file, bool figures);

}  // namespace crest
