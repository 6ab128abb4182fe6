// A table of settings bound to the structs of their values.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "settings/setting.h"

namespace crest {

// The values given for settings: texts by name. For a setting with one value, the last one wins.
using GivenSettings = std::map<std::string, std::vector<std::string>>;

class Settings {
 public:
  // The rows of `table`, bound to values in *object. `table` must outlive this.
  Settings& add(const std::vector<Setting>& table, void* object);

  struct Row {
    const Setting* setting;
    void* object;
    SettingValue value() const { return setting->get(*setting, object); }
    std::string text() const { return text_of(value()); }
  };
  const std::vector<Row>& rows() const& { return rows_; }
  std::vector<Row> rows() && { return std::move(rows_); }  // for (auto& row : settings_of(x).rows())
  // Null for an unknown name. `name` is a flag without dashes, or a key.
  const Row* find(const std::string& name) const&;
  const Row* find(const std::string& name) const&& = delete;  // it would outlive its table
  // Throws an internal error for an unknown name.
  const Row& at(const std::string& name) const;

  // Parses and sets values in the order of the rows, not in the order given: a model comes before
  // its sizes. Ignores other names. Throws the usage errors of parse_setting.
  void apply(const GivenSettings& given, const std::string& where = "") const;

  // Checks every value like a user's: for values set by the program.
  void check() const;

  // By key, in the order of the rows.
  nlohmann::ordered_json json(const std::function<bool(const Setting&)>& which = {}) const;
  // "batch = 8", ...: equal on all ranks of a run (Setting::local). defaults: the same tables; a
  // computed default is "default".
  std::vector<std::string> shared(const Settings& defaults) const;
  // {"--batch=8", ...}. With `otherwise` (the same tables), only the differences.
  std::vector<std::string> flags(const Settings* otherwise = nullptr) const;

 private:
  std::vector<Row> rows_;
};

// A JSON value of a setting as text for parse_setting. Other kinds of values: as dump prints them.
std::vector<std::string> texts_of(const nlohmann::ordered_json& value);

}  // namespace crest
