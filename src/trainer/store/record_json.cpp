#include "store/record_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/json_number.h"
#include "core/text.h"

namespace crest {

const std::vector<RunText> run_texts = {
    {"uid", &RunRecord::uid},         {"name", &RunRecord::name},       {"kind", &RunRecord::kind},
    {"status", &RunRecord::status},   {"started", &RunRecord::started}, {"finished", &RunRecord::finished},
    {"command", &RunRecord::command}, {"folder", &RunRecord::folder},   {"grid", &RunRecord::grid},
    {"key", &RunRecord::key},         {"phase", &RunRecord::phase},     {"error", &RunRecord::error}};

const std::vector<std::string> run_kinds = {"bench", "profile",    "train", "compare",
                                            "comm",  "experiment", "gemm",  "log"};
const std::vector<std::string> run_states = {"running", "done", "failed", "interrupted", "lost", "out_of_memory"};

const char* const import_advice = "The file is damaged or was not written by crest runs export; nothing was imported.";

namespace {

struct RunJson {
  const char* key;
  Json RunRecord::*field;
};
const std::vector<RunJson> run_jsons = {{"recipe", &RunRecord::recipe},
                                        {"device", &RunRecord::device},
                                        {"environment", &RunRecord::environment},
                                        {"environment_after", &RunRecord::environment_after},
                                        {"result", &RunRecord::result}};

constexpr size_t longest_text = 1 << 20;

[[noreturn]] void refuse(const std::string& what, const std::string& where) { fail(what, where, import_advice); }

bool is_hex(const std::string& text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }

// "2026-01-31T12:00:00Z", with or without fractions.
bool is_utc(const std::string& text) {
  static const std::string form = "0000-00-00T00:00:00";
  if (text.size() < form.size() + 1 || text.size() > 40 || text.back() != 'Z') return false;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    char expected = i < form.size() ? form[i] : i == form.size() ? '.' : '0';
    if (expected == '0' ? !(text[i] >= '0' && text[i] <= '9') : text[i] != expected) return false;
  }
  return true;
}

double real_of(const Json& value, const char* what, const std::string& where) {
  if (value.is_null()) return NAN;
  if (!value.is_number()) refuse(fmt::format("{} is not a number", what), where);
  return value.get<double>();
}

int64_t integer_of(const Json& value, const char* what, int64_t largest, const std::string& where) {
  bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(largest)
                                         : value.is_number_integer() && value.get<int64_t>() >= 0;
  if (!fits) refuse(fmt::format("{} is not a number from 0 to {}", what, largest), where);
  return value.get<int64_t>();
}

bool bool_of(const Json& value, const char* what, const std::string& where) {
  if (!value.is_boolean()) refuse(fmt::format("{} is not true or false", what), where);
  return value.get<bool>();
}

std::string text_of(const Json& value, const char* what, const std::string& where) {
  if (!value.is_string()) refuse(fmt::format("{} is not a string", what), where);
  auto& text = value.get_ref<const std::string&>();
  if (text.size() > longest_text) refuse(fmt::format("{} is longer than {} bytes", what, longest_text), where);
  return text;
}

const Json& row_of(const Json& row, size_t size, const std::string& where) {
  if (!row.is_array() || row.size() != size) refuse(fmt::format("a row is not a list of {} values", size), where);
  return row;
}

}  // namespace

Json run_to_json(const RunRecord& r) {
  Json json = {{"id", r.id}};
  for (auto& [key, field] : run_texts) json[key] = r.*field;
  json["imported_from"] = r.imported_from;
  for (auto& [key, field] : run_jsons) json[key] = r.*field;
  if (!r.damage.empty()) json["damaged"] = r.damage;
  return json;
}

Json runs_to_json(const std::vector<RunRecord>& records) {
  Json list = Json::array();
  for (auto& r : records) list.push_back(run_to_json(r));
  return list;
}

Json run_names_to_json(const std::vector<RunRecord>& records) {
  Json list = Json::array();
  for (auto& r : records) list.push_back({{"id", r.id}, {"uid", r.uid}, {"name", r.name}});
  return list;
}

Json to_json(const SampleRow& row) {
  return {
      {"ms", number_or_null(row.ms)}, {"round", row.round}, {"contender", row.contender}, {"throttled", row.throttled}};
}

Json to_json(const LogRow& r) {
  Json json = {{"step", r.step}};
  for (auto& column : log_columns) {
    if (&column == log_columns + log_columns_before_skipped) json["skipped"] = r.skipped;
    json[column.name] = number_or_null(r.*column.field);
  }
  return json;
}

Json record_to_json(const RunRecord& r) {
  Json json = run_to_json(r);
  json["samples"] = Json::array();
  for (auto& row : r.samples) json["samples"].push_back(to_json(row));
  json["log"] = Json::array();
  for (auto& row : r.log) json["log"].push_back(to_json(row));
  json["documents"] = Json::array();
  for (auto& [name, document] : r.documents) json["documents"].push_back(name);
  return json;
}

RunRecord run_from_json(const Json& json, const std::string& where) {
  RunRecord r;
  for (auto& [key, field] : run_texts) {
    if (!json.contains(key)) refuse(fmt::format("a run without '{}'", key), where);
    r.*field = text_of(json[key], key, where);
  }
  for (auto& [key, field] : run_jsons) {
    if (!json.contains(key)) continue;
    if (!json[key].is_object() && !json[key].is_array() && !json[key].is_null())
      refuse(fmt::format("{} is neither an object nor null", key), where);
    r.*field = json[key];
  }
  if (r.uid.size() != 16 || !is_hex(r.uid)) refuse("uid is not 16 hexadecimal digits", where);
  if (!is_utc(r.started)) refuse("started is not a UTC time", where);
  if (!r.finished.empty() && !is_utc(r.finished)) refuse("finished is not a UTC time", where);
  if (std::find(run_states.begin(), run_states.end(), r.status) == run_states.end())
    refuse(fmt::format("unknown status '{}'", printable(r.status)), where);
  if (r.kind.empty() || r.name.empty()) refuse("a run without kind or name", where);
  if (r.status == "running") r.status = "lost";
  return r;
}

Json samples_to_rows(const std::vector<SampleRow>& samples, size_t first, size_t count) {
  Json rows = Json::array();
  for (size_t i = first; i < std::min(first + count, samples.size()); ++i) {
    auto& s = samples[i];
    rows.push_back({number_or_null(s.ms), s.round, s.contender, s.throttled});
  }
  return rows;
}

Json log_to_rows(const std::vector<LogRow>& log, size_t first, size_t count) {
  Json rows = Json::array();
  for (size_t i = first; i < std::min(first + count, log.size()); ++i) {
    auto& r = log[i];
    Json row = Json::array({r.step});
    for (auto& column : log_columns) {
      if (&column == log_columns + log_columns_before_skipped) row.push_back(r.skipped);
      row.push_back(number_or_null(r.*column.field));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void append_samples(const Json& rows, std::vector<SampleRow>& samples, const std::string& where) {
  for (auto& row : rows) {
    auto& r = row_of(row, 4, where);
    SampleRow s;
    s.ms = real_of(r[0], "ms", where);
    s.round = int(integer_of(r[1], "round", std::numeric_limits<int>::max(), where));
    s.contender = text_of(r[2], "contender", where);
    s.throttled = bool_of(r[3], "throttled", where);
    samples.push_back(std::move(s));
  }
}

void append_log(const Json& rows, std::vector<LogRow>& log, const std::string& where) {
  for (auto& row : rows) {
    constexpr size_t before = log_columns_before_skipped, all = std::size(log_columns);
    const bool version_1 = row.is_array() && row.size() == before + 2;
    auto& r = row_of(row, version_1 ? before + 2 : all + 2, where);
    LogRow l;
    l.step = integer_of(r[0], "step", std::numeric_limits<int64_t>::max(), where);
    for (size_t c = 0; c < (version_1 ? before : all); ++c)
      l.*log_columns[c].field = real_of(r[c + (c < before ? 1 : 2)], log_columns[c].name, where);
    l.skipped = bool_of(r[before + 1], "skipped", where);
    log.push_back(l);
  }
}

}  // namespace crest
