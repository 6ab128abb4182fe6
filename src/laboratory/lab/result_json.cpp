#include "lab/result_json.h"

#include <cmath>

#include "core/json_number.h"
#include "store/record.h"

namespace crest::lab {

Json to_json(const Value& v) {
  if (!v.known()) return {{"unknown", v.unknown}};
  if (v.type == Value::Type::text) return v.text;
  if (v.type == Value::Type::truth) return v.truth == Truth::yes;
  if (v.exact()) return number_or_null(v.x);
  return {{"value", number_or_null(v.x)}, {"low", number_or_null(v.low)}, {"high", number_or_null(v.high)}};
}

static double number_at(const Json& json, const char* key) {
  auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : NAN;
}

Value value_from_json(const Json& json) {
  if (json.is_string()) return Value::of_text(json.get<std::string>());
  if (json.is_boolean()) return Value::yes_no(json.get<bool>());
  if (json.is_number()) return Value::number(json.get<double>());
  if (json.is_object() && json.contains("value"))
    return Value::range(number_at(json, "value"), number_at(json, "low"), number_at(json, "high"));
  std::string why = text_at(json, "unknown");
  return Value::missing(why.empty() ? "not recorded" : why);
}

Json to_json(const Row& row) {
  Json keys = Json::object(), columns = Json::object();
  for (auto& [key, text] : row.keys) keys[key] = text;
  for (auto& [column, value] : row.columns) columns[column] = to_json(value);
  Json json = {{"keys", keys}, {"columns", columns}};
  json["absent"] = row.absent;
  json["run"] = row.run;
  json["again"] = row.again;
  json["round_ms"] = row.round_ms;
  return json;
}

Row row_from_json(const Json& json) {
  Row row;
  if (!json.is_object()) return row;
  auto each = [&](const char* of, auto add) {
    auto it = json.find(of);
    if (it != json.end() && it->is_object())
      for (auto& [key, value] : it->items()) add(key, value);
  };
  each("keys", [&](auto& key, const Json& text) {
    if (text.is_string()) row.keys[key] = text.get<std::string>();
  });
  each("columns", [&](auto& column, const Json& value) { row.columns[column] = value_from_json(value); });
  row.absent = text_at(json, "absent");
  row.run = text_at(json, "run");
  row.again = text_at(json, "again");
  if (auto it = json.find("round_ms"); it != json.end() && it->is_array() && it->size() == 2)
    for (auto& ms : *it) row.round_ms.push_back(ms.is_number() ? ms.get<double>() : NAN);
  return row;
}

static Json claim_json(const Claim& c, const ClaimResult& r) {
  Json figures = Json::array();
  for (auto& [what, value] : r.figures) {
    figures.push_back({{"figure", what}, {"value", to_json(value)}});
    if (value.unit != Unit::number) figures.back()["unit"] = name(value.unit);
  }
  Json json = {{"text", c.text},        {"subject", c.subject},       {"source", c.source},
               {"check", c.check.text}, {"verdict", name(r.verdict)}, {"figures", figures}};
  if (!c.quote.empty()) json["quote"] = c.quote;
  if (!c.conditions.about.empty()) json["about"] = c.conditions.about;
  json["reason"] = r.reason;
  return json;
}

Json to_json(const Result& r) {
  const Experiment& e = *r.experiment;
  Json rows = Json::array(), quantities = Json::object(), claims = Json::array(), then = Json::array();
  for (auto& row : r.table.rows) rows.push_back(to_json(row));
  for (auto& [name, value] : r.quantities) quantities[name] = to_json(value);
  for (size_t i = 0; i < r.claims.size(); ++i) claims.push_back(claim_json(e.claims[i], r.claims[i]));
  for (size_t i = 0; i < r.then.size(); ++i)
    then.push_back({{"what", e.then[i].what},
                    {"unit", e.then[i].unit},
                    {"source", e.then[i].source},
                    {"document", e.then[i].document},
                    {"here", to_json(r.then[i])}});
  return {{"name", e.name},
          {"title", e.title},
          {"question", e.question},
          {"source", e.source},
          {"kind", name(e.kind)},
          {"show", e.show},
          {"scale", r.scale},
          {"device", r.device},
          {"noise_floor", r.noise_floor},
          {"noise_floor_source", r.floor_source},
          {"cells_left", r.measurements_left},
          {"rows", rows},
          {"quantities", quantities},
          {"claims", claims},
          {"then", then}};
}

Json to_json(const Experiment& e) {
  Json json = {{"name", e.name},
               {"title", e.title},
               {"question", e.question},
               {"source", e.source},
               {"kind", name(e.kind)},
               {"claims", e.claims.size()},
               {"available", e.unavailable.empty()}};
  json["reason"] = e.unavailable;
  return json;
}

Json to_json(const Experiment& e, const std::vector<MeasurementSpec>& measurements, const std::string& scale) {
  Json json = to_json(e), rows = Json::array(), claims = Json::array();
  for (auto& c : measurements) {
    Json settings = Json::object();
    for (auto& [key, value] : c.settings) settings[key] = value;
    rows.push_back(settings);
  }
  for (auto& c : e.claims) {
    claims.push_back({{"text", c.text}, {"subject", c.subject}, {"source", c.source}, {"check", c.check.text}});
    if (!c.quote.empty()) claims.back()["quote"] = c.quote;
    if (!c.conditions.about.empty()) claims.back()["about"] = c.conditions.about;
  }
  json["scale"] = scale, json["cells"] = rows, json["claims"] = claims;
  return json;
}

Json to_json(const std::vector<Result>& results) {
  Json list = Json::array();
  for (auto& r : results) list.push_back(to_json(r));
  return list;
}

Json to_json(const std::vector<Experiment>& experiments) {
  Json list = Json::array();
  for (auto& e : experiments) list.push_back(to_json(e));
  return list;
}

}  // namespace crest::lab
