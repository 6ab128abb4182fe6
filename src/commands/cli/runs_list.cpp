#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "cli/runs_print.h"
#include "core/error.h"
#include "core/text.h"
#include "terminal/csv.h"
#include "terminal/fit_table.h"
#include "train/training_settings.h"

namespace crest {

namespace {

// The value at a path of keys; null when it is absent.
Json at(const Json& json, std::initializer_list<const char*> path) {
  const Json* value = &json;
  for (const char* key : path) {
    if (!value->is_object() || !value->contains(key)) return nullptr;
    value = &(*value)[key];
  }
  return *value;
}

double number(const Json& json) { return json.is_number() ? json.get<double>() : NAN; }

std::string text(const Json& json) {
  if (json.is_null()) return "";
  return json.is_string() ? json.get<std::string>()
                          : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The value in the measured row, or in the first one if there are several.
Json result(const RunRecord& r, std::initializer_list<const char*> path) {
  const Json* row = &r.result;
  if (row->is_object() && row->contains("rows")) row = &(*row)["rows"];
  if (row->is_array() && !row->empty()) row = &(*row)[0];
  return at(*row, path);
}

struct ListColumn {
  std::string name;    // name in the CSV
  const char* header;  // header in the table; null: shown only on request
  Align align;
  bool numeric;  // get() gives a number for the CSV
  std::function<Json(const RunRecord&)> get;
  std::string (*show)(const Json&);  // how the table shows it; null: unchanged
};

std::string digits(const Json& j, const char* form) {
  return std::isfinite(number(j)) ? fmt::format(fmt::runtime(form), number(j)) : "";
}

const std::vector<ListColumn>& columns() {
  constexpr Align left = Align::left, right = Align::right;
  static const std::vector<ListColumn> all = {
      {"id", "id", right, true, [](const RunRecord& r) { return Json(r.id); }, nullptr},
      {"name", "name", left, false, [](const RunRecord& r) { return Json(r.name); },
       [](const Json& j) { return fit_width(printable(text(j)), 44); }},
      {"kind", "kind", left, false, [](const RunRecord& r) { return Json(r.kind); }, nullptr},
      {"status", "status", left, false,
       [](const RunRecord& r) { return Json(r.damage.empty() ? r.status : "damaged"); }, nullptr},
      {"started", "started (UTC)", left, false, [](const RunRecord& r) { return Json(r.started); },
       [](const Json& j) {
         std::string t = text(j).substr(0, 16);
         if (t.size() > 10) t[10] = ' ';
         return t;
       }},
      {"finished", nullptr, left, false, [](const RunRecord& r) { return Json(r.finished); }, nullptr},
      {"phase", nullptr, left, false, [](const RunRecord& r) { return Json(r.phase); }, nullptr},
      {"model", "model", left, false, [](const RunRecord& r) { return at(r.recipe, {"model"}); },
       [](const Json& j) { return fit_width(printable(text(j)), 24); }},
      {"batch", "B", right, true, [](const RunRecord& r) { return at(r.recipe, {"batch"}); }, nullptr},
      {"seq", "T", right, true, [](const RunRecord& r) { return at(r.recipe, {"seq"}); }, nullptr},
      {"precision", "precision", left, false, [](const RunRecord& r) { return at(r.recipe, {"precision"}); }, nullptr},
      {"attention", nullptr, left, false, [](const RunRecord& r) { return at(r.recipe, {"attention"}); }, nullptr},
      {"fusion", nullptr, left, false, [](const RunRecord& r) { return at(r.recipe, {"fusion"}); }, nullptr},
      {"recompute", nullptr, left, false, [](const RunRecord& r) { return at(r.recipe, {"recompute"}); }, nullptr},
      {"step_ms_median", "step ms", right, true, [](const RunRecord& r) { return result(r, {"step_ms_median"}); },
       [](const Json& j) { return number(j) > 0 ? digits(j, "{:.2f}") : ""; }},  // 0: no step ran
      {"tokens_per_second", "tokens/s", right, true,
       [](const RunRecord& r) { return result(r, {"tokens_per_second"}); },
       [](const Json& j) { return digits(j, "{:.0f}"); }},
      {"mfu", "MFU", right, true, [](const RunRecord& r) { return result(r, {"mfu"}); },
       [](const Json& j) { return std::isfinite(number(j)) ? fmt::format("{:.1f}%", 100 * number(j)) : ""; }},
      {"loss", "loss", right, true, [](const RunRecord& r) { return result(r, {"loss"}); },
       [](const Json& j) { return digits(j, "{:.4f}"); }},
      {"val_loss", "val loss", right, true, [](const RunRecord& r) { return result(r, {"val_loss"}); },
       [](const Json& j) { return digits(j, "{:.4f}"); }},
      {"planned_bytes", nullptr, right, true,
       [](const RunRecord& r) {
         return result(r, {"memory", "planned_bytes"});
       },
       nullptr},
      {"device_peak_bytes", "peak memory", right, true,
       [](const RunRecord& r) {
         return result(r, {"memory", "device_peak_bytes"});
       },
       [](const Json& j) { return std::isfinite(number(j)) ? format_bytes(number(j)) : ""; }},
      {"device", "device", left, false, [](const RunRecord& r) { return at(r.device, {"name"}); },
       [](const Json& j) { return fit_width(printable(text(j)), 28); }},
      {"uid", nullptr, left, false, [](const RunRecord& r) { return Json(r.uid); }, nullptr},
      {"key", nullptr, left, false, [](const RunRecord& r) { return Json(r.key); }, nullptr},
      {"grid", nullptr, left, false, [](const RunRecord& r) { return Json(r.grid); }, nullptr},
      {"folder", nullptr, left, false, [](const RunRecord& r) { return Json(r.folder); }, nullptr},
      {"imported_from", nullptr, left, false, [](const RunRecord& r) { return Json(r.imported_from); }, nullptr},
      {"error", nullptr, left, false, [](const RunRecord& r) { return Json(r.error); }, nullptr},
      {"command", nullptr, left, false, [](const RunRecord& r) { return Json(r.command); }, nullptr}};
  return all;
}

}  // namespace

namespace {

ListColumn setting_column(const Setting& s) {
  bool number = s.type == SettingType::whole || s.type == SettingType::number;
  std::string key = s.key();
  return {key,
          nullptr,
          number ? Align::right : Align::left,
          number,
          [key](const RunRecord& r) { return r.recipe.is_object() && r.recipe.contains(key) ? r.recipe[key] : Json(); },
          nullptr};
}

std::vector<ListColumn> chosen_columns(const std::string& names) {
  if (names.empty()) return columns();
  std::vector<ListColumn> all = columns(), chosen;
  for (auto* row : run_settings()) {
    auto known = [&](auto& c) { return c.name == row->key(); };
    if (std::none_of(all.begin(), all.end(), known)) all.push_back(setting_column(*row));
  }
  for (auto& name : split(names, ',')) {
    auto it = std::find_if(all.begin(), all.end(), [&](auto& c) { return c.name == name; });
    if (it == all.end()) {
      std::vector<std::string> known;
      for (auto& c : all) known.push_back(c.name);
      fail_usage(fmt::format("no column '{}'", printable(name)), "--columns",
                 did_you_mean(name, known) + " Columns: " + join(known, ", ") + ".");
    }
    chosen.push_back(*it);
  }
  return chosen;
}

}  // namespace

// How soon a column is left out of a narrow table; 0: never.
static int rank_of(const std::string& column) {
  static const char* const order[] = {"kind", "status", "step_ms_median",    "precision", "batch",
                                      "seq",  "model",  "device_peak_bytes", "started",   "device"};
  for (size_t i = 0; i < std::size(order); ++i)
    if (column == order[i]) return int(i) + 1;
  return 0;
}

std::string runs_table(const std::vector<RunRecord>& runs, const std::string& names, bool color, size_t width) {
  std::vector<FitColumn> header;
  std::vector<std::vector<std::string>> rows(runs.size());
  std::vector<ListColumn> columns = chosen_columns(names);
  for (auto& column : columns) {
    if (!column.header && names.empty()) continue;
    std::vector<std::string> cells;
    bool any = false;
    for (auto& r : runs) {
      Json value = column.get(r);
      cells.push_back(column.show ? column.show(value) : text(value));
      any = any || !cells.back().empty();
    }
    if (!any && names.empty()) continue;  // a column for training runs is empty in a list of measurements
    header.push_back({{column.header ? std::string(column.header) : column.name, column.align},
                      names.empty() ? rank_of(column.name) : 0});
    for (size_t i = 0; i < runs.size(); ++i) rows[i].push_back(cells[i]);
  }
  return fit_table(header, rows, width, color);
}

std::string runs_csv(const std::vector<RunRecord>& runs, const std::string& names) {
  std::vector<ListColumn> columns = chosen_columns(names);
  std::vector<std::string> head;
  for (auto& column : columns) head.push_back(column.name);
  std::string out = csv_line(head);
  for (auto& r : runs) {
    std::vector<std::string> fields;
    for (auto& column : columns) {
      Json value = column.get(r);
      // Numbers keep the digits they were written with: 123456789 bytes, not 1.23457e+08.
      fields.push_back(column.numeric && value.is_number() ? value.dump() : csv_text(text(value)));
    }
    out += csv_line(fields);
  }
  return out;
}

std::string short_name(const RunRecord& r) { return fmt::format("{}  {} ({})", r.id, printable(r.name), r.kind); }

}  // namespace crest
