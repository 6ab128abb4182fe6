// Profiles among the cells of a report.
#pragma once
#include <string>
#include <vector>

#include "report/report_parts.h"

namespace crest {

struct ProfiledCell {
  std::string title;
  const ReportGroup* group = nullptr;
  const ReportCell* cell = nullptr;
  const Profile* profile = nullptr;
};
std::vector<ProfiledCell> profiled_cells(const ReportData& data);

// Memory over the instructions, and what is alive at the peak.
void add_profile_memory(Page& page, const ProfiledCell& profiled);

}  // namespace crest
