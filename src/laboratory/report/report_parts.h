// The parts of a report. Each adds its blocks to the page, or nothing if the runs lack its data.
// Some return sentences for the summary or JSON.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.h"
#include "report/page.h"
#include "report/report_data.h"

namespace crest {

// Two measurements of a group with one differing setting. Speeds are per token, so batches of any
// size are comparable.
struct ReportPair {
  const ReportMeasurement *a = nullptr, *b = nullptr;
  std::string setting, from, to, context;  // context: the varying settings with equal values
  double speed = 0;                        // b / a; NaN if one was not measured
  Interval interval;                       // 95%
  Verdict verdict = Verdict::cannot_tell;
  std::string apart;  // why separate measurements support no claim: "the machine was busy"
  double memory = 0;  // planned bytes, b / a; NaN: unknown
};
// A setting's change from a to b, in all its contexts.
struct SettingChange {
  std::string setting, from, to;
  std::vector<ReportPair> pairs;
  Text sentence;
};
std::vector<SettingChange> find_setting_changes(const ReportGroup& group);
ReportPair judge(const ReportGroup& group, const ReportMeasurement& a, const ReportMeasurement& b);

void add_summary(Page& page, const ReportData& data, const std::vector<std::vector<SettingChange>>& setting_changes);
std::vector<Text> warnings(const ReportData& data);

// Tables and figures of a group.
void add_matrix(Page& page, const ReportGroup& group);
void add_sweeps(Page& page, const ReportGroup& group);
void add_setting_changes(Page& page, const ReportGroup& group, const std::vector<SettingChange>& changes);
void add_training(Page& page, const ReportData& data);
void add_profiles(Page& page, const ReportData& data);
// The time lost by more ranks, and how each rank spent its step.
void add_scaling(Page& page, const ReportData& data);
void add_comparisons(Page& page, const ReportData& data);
std::vector<Text> recommendations(const ReportGroup& group, const std::vector<SettingChange>& changes);
void add_machine(Page& page, const ReportData& data);
void add_commands(Page& page, const ReportData& data);
void add_index(Page& page, const ReportData& data);
void add_terms(Page& page, const ReportData& data);

}  // namespace crest
