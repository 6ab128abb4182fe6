// The profiled measurements of a report, with instructions grouped by role and operation.
#pragma once
#include <string>
#include <vector>

#include "profile/profile.h"
#include "report/report_parts.h"

namespace crest {

struct ProfiledMeasurement {
  std::string title, row_label;  // for headings; for figures
  const ReportGroup* group = nullptr;
  const ReportMeasurement* measurement = nullptr;
  const Profile* profile = nullptr;
};
std::vector<ProfiledMeasurement> profiled_measurements(const ReportData& data);

// Memory over the instructions, and live blocks at the peak.
void add_profile_memory(Page& page, const ProfiledMeasurement& profiled);

// Instructions with the same role in every layer, as one row.
struct InstrGroup {
  std::string label;  // "mlp.fc linear_gelu"
  std::string phase, op_class, kernel, arithmetic;
  int64_t calls = 0;
  double ms = 0, floor_ms = 0, flops = 0, bytes = 0;
  double above_roofline_ms() const { return ms - floor_ms; }
};
// Longest first.
std::vector<InstrGroup> instr_groups(const Profile& profile);

// The label of an instruction: role and operation, or a fused instruction's parts.
std::string label_of(const ProfileInstr& instr);

}  // namespace crest
