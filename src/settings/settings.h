// A table of settings bound to the structs that hold their values.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "settings/setting.h"

namespace crest {

// What somebody gave for settings: texts by name. Of a setting with one value the last counts.
using GivenSettings = std::map<std::string, std::vector<std::string>>;

class Settings {
 public:
  // Rows of `table`, which must outlive this, whose values are in *object.
  Settings& add(const std::vector<Setting>& table, void* object);

  struct Row {
    const Setting* setting;
    void* object;
    SettingValue value() const { return setting->get(*setting, object); }
    std::string text() const { return text_of(value()); }
  };
  const std::vector<Row>& rows() const& { return rows_; }
  std::vector<Row> rows() && { return std::move(rows_); }  // for (auto& row : settings_of(x).rows())
  // Null where there is none. `name` as a flag without dashes, or as a key.
  const Row* find(const std::string& name) const&;
  const Row* find(const std::string& name) const&& = delete;  // it would outlive its table
  // An internal error where there is none.
  const Row& at(const std::string& name) const;

  // Parses and sets, in the order of the rows, whatever the order in which they were given: a model before its sizes.
  // Names that are no setting are left to the caller. Usage errors as of parse_setting.
  void apply(const GivenSettings& given, const std::string& where = "") const;

  // That every value is one that could have been given: for what a program set.
  void check() const;

  // By key, in the order of the rows.
  nlohmann::ordered_json json(const std::function<bool(const Setting&)>& which = {}) const;
  // {"--batch=8", ...}; with `otherwise` (the same tables) only what differs from it.
  std::vector<std::string> flags(const Settings* otherwise = nullptr) const;

 private:
  std::vector<Row> rows_;
};

// A JSON value of a setting as text that parse_setting takes; of another kind as dump.
std::vector<std::string> texts_of(const nlohmann::ordered_json& value);

}  // namespace crest
