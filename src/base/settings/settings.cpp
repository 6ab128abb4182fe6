#include "settings/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace crest {

using Json = nlohmann::ordered_json;

Settings& Settings::add(const std::vector<Setting>& table, void* object) {
  for (auto& setting : table) {
    if (find(setting.name)) fail_internal(fmt::format("two settings are called {}", setting.name));
    rows_.push_back({&setting, object});
  }
  return *this;
}

const Settings::Row* Settings::find(const std::string& name) const& {
  std::string flag = name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  for (auto& row : rows_)
    if (flag == row.setting->name) return &row;
  return nullptr;
}

const Settings::Row& Settings::at(const std::string& name) const {
  const Row* row = find(name);
  if (!row) fail_internal(fmt::format("there is no setting '{}'", name));
  return *row;
}

void Settings::apply(const GivenSettings& given, const std::string& where) const {
  for (auto& row : rows_) {
    const Setting& s = *row.setting;
    auto it = given.find(s.name);
    if (it == given.end() || it->second.empty()) continue;
    if (s.type == SettingType::list) {
      for (auto& text : it->second) parse_setting(s, text, where);
      s.set(s, row.object, it->second);
    } else {
      s.set(s, row.object, parse_setting(s, it->second.back(), where));
    }
  }
}

static Json json_of(const Setting& row, const SettingValue& value) {
  if (!row.pairs) return std::visit([](auto& x) { return Json(x); }, value);
  Json object = Json::object();
  for (auto& pair : std::get<std::vector<std::string>>(value))
    object[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
  return object;
}

void Settings::check() const {
  for (auto& row : rows_) {
    SettingValue value = row.value();
    auto* list = std::get_if<std::vector<std::string>>(&value);
    for (auto& text : list ? *list : std::vector<std::string>{text_of(value)})
      if (!row.setting->choices.empty() || row.setting->type != SettingType::text) parse_setting(*row.setting, text);
  }
}

Json Settings::json(const std::function<bool(const Setting&)>& which) const {
  Json json = Json::object();
  for (auto& row : rows_)
    if (!which || which(*row.setting)) json[row.setting->key()] = json_of(*row.setting, row.value());
  return json;
}

std::vector<std::string> Settings::shared(const Settings& defaults) const {
  std::vector<std::string> lines;
  for (auto& row : rows_) {
    const Setting& s = *row.setting;
    if (s.local) continue;
    const SettingValue value = row.value();
    const bool computed = *s.default_value && value == defaults.at(s.name).value();
    const std::string text = json_of(s, value).dump(-1, ' ', false, Json::error_handler_t::replace);
    lines.push_back(fmt::format("{} = {}", s.key(), computed ? "default" : text));
  }
  return lines;
}

std::vector<std::string> Settings::flags(const Settings* otherwise) const {
  std::vector<std::string> flags;
  for (auto& row : rows_) {
    SettingValue value = row.value();
    if (otherwise && otherwise->at(row.setting->name).value() == value) continue;
    if (auto* list = std::get_if<std::vector<std::string>>(&value)) {
      for (auto& element : *list) flags.push_back(row.setting->flag() + "=" + element);
    } else if (auto* truth = std::get_if<bool>(&value)) {
      if (*truth) flags.push_back(row.setting->flag());
    } else {
      flags.push_back(row.setting->flag() + "=" + text_of(value));
    }
  }
  return flags;
}

std::vector<std::string> texts_of(const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  if (value.is_array())
    for (auto& element : value)
      for (auto& text : texts_of(element)) texts.push_back(text);
  else if (value.is_object())  // {"attention": "cpu.*"}: attention=cpu.*
    for (auto& [key, element] : value.items())
      for (auto& text : texts_of(element)) texts.push_back(key + "=" + text);
  else
    texts.push_back(value.dump());
  return texts;
}

}  // namespace crest
