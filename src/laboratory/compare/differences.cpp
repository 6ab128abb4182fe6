#include "compare/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "plan/automatic.h"
#include "plan/recipe_settings.h"
#include "profile/kernel_name.h"
#include "train/training_settings.h"

namespace crest {

namespace {

std::string text_of(const Json* value) {
  if (!value) return "not recorded";
  if (value->is_string()) return value->get<std::string>();
  if (value->is_number_float()) return fmt::format("{:.10g}", value->get<double>());  // not 0.00030000000000000003
  return value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

class List {
 public:
  void add(const char* section, const std::string& key, const Json* a, const Json* b) {
    if ((a == nullptr) == (b == nullptr) && (!a || *a == *b)) return;
    std::string text_a = text_of(a), text_b = text_of(b);
    // Fractions computed from other settings have many digits: as many as tell the two apart.
    if (a && b && a->is_number_float() && b->is_number_float())
      for (int digits = 4; digits < 10; ++digits) {
        std::string x = fmt::format("{:.{}g}", a->get<double>(), digits),
                    y = fmt::format("{:.{}g}", b->get<double>(), digits);
        if (x == y) continue;
        text_a = x, text_b = y;
        break;
      }
    list_.push_back({section, key, text_a, text_b});
  }
  void add(const char* section, const std::string& key, const std::string& a, const std::string& b) {
    if (a != b) list_.push_back({section, key, a, b});
  }
  // Key by key: the keys of A in their order, then the keys only in B. Nothing if one side is
  // missing.
  void add_all(const char* section, const Json* a, const Json* b) {
    if (!a || !b || !a->is_object() || !b->is_object() || a->empty() || b->empty()) return;
    for (auto& [key, value] : a->items()) add(section, key, member(*a, key), member(*b, key));
    for (auto& [key, value] : b->items())
      if (!a->contains(key)) add(section, key, nullptr, member(*b, key));
  }
  std::vector<Difference> take() { return std::move(list_); }

 private:
  std::vector<Difference> list_;
};

// The settings of a run: recipe and training. An older record lacks newer settings: they had their
// defaults, or are unknown if the default is computed.
void add_settings(List& list, const ComparedSide& side_a, const ComparedSide& side_b) {
  const Json &a = side_a.recipe, &b = side_b.recipe;
  if (!a.is_object() || !b.is_object() || a.empty() || b.empty()) return;
  // A setting missing from an imported log is unknown, not at its default.
  bool known = side_a.run.recipe_known && side_b.run.recipe_known;
  static const Recipe recipe;
  static const TrainOptions training;
  const Settings recipes = settings_of(recipe), trainings = settings_of(training);
  // Values derived from other settings are not differences of their own.
  std::vector<std::string> in_a = automatic_settings(a, side_a.device), in_b = automatic_settings(b, side_b.device);
  auto has = [](const std::vector<std::string>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  bool same_data = !text_at(a, "data_hash").empty() && text_at(a, "data_hash") == text_at(b, "data_hash");
  auto add = [&](const std::string& key) {
    const Json *x = member(a, key.c_str()), *y = member(b, key.c_str());
    if (key == "data" && same_data) return;
    if (has(in_a, key) && has(in_b, key)) return;
    if (key == "data_hash" && (!x || !y || text_at(a, "data_hash").empty() || text_at(b, "data_hash").empty())) return;
    if (x && y) return list.add("recipe", key, x, y);
    if (!known) return;
    const Settings::Row* row = recipes.find(key);
    if (!row && trainings.find(key)) return;  // one side is a measurement, or an older run
    if (row && !*row->setting->default_value) {
      Json otherwise = recipes.json([&](const Setting& s) { return &s == row->setting; })[key];
      return list.add("recipe", key, x ? x : &otherwise, y ? y : &otherwise);
    }
    if (!row) list.add("recipe", key, x, y);
  };
  for (auto& [key, value] : a.items()) add(key);
  for (auto& [key, value] : b.items())
    if (!a.contains(key)) add(key);
}

void add_device(List& list, const ComparedSide& a, const ComparedSide& b) {
  if (!a.device.is_object() || !b.device.is_object()) return;
  // Not memory_bytes: on a CPU it is the memory free at that time.
  for (const char* key : {"kind", "name", "threads", "isa"}) {
    const Json *x = member(a.device, key), *y = member(b.device, key);
    bool recorded = x && y && *x != Json("") && *y != Json("");  // imported logs and traces may lack it
    if (recorded) list.add("device", key, x, y);
  }
  // The same kind of device in another machine counts as another device.
  for (const char* key : {"cpu_model", "host_id"}) {
    const Json *x = member(a.environment, key), *y = member(b.environment, key);
    if (x && y) list.add("device", key, x, y);
  }
}

void add_versions(List& list, const ComparedSide& a, const ComparedSide& b) {
  for (const char* key : {"crest_version", "compiler", "kernel"}) {
    const Json *x = member(a.environment, key), *y = member(b.environment, key);
    if (x && y) list.add("versions", key, x, y);
  }
  list.add_all("versions", member(a.environment, "libraries"), member(b.environment, "libraries"));
  // The user's library folder, recorded only if given.
  auto from = [](const ComparedSide& s, const char* key) {
    const Json* libraries = member(s.environment, "chosen_libraries");
    return libraries ? member(*libraries, key) : nullptr;
  };
  for (const char* key : {"libraries", "cublasLt", "cudnn"})
    list.add("versions", std::string(key) + " from", from(a, key), from(b, key));
}

// The kernel of each operation and shape on both sides: Crest's names, or the device's names if
// Crest's are equal.
struct Chosen {
  std::set<std::string> kernels, device_kernels;
};
std::map<std::string, Chosen> chosen(const ComparedSide& s) {
  std::map<std::string, Chosen> map;
  std::vector<std::string> keys;
  for (auto& r : s.rows) {
    keys.push_back(fmt::format("{} {} ({})", r.op, r.type, r.phase));
    if (!r.kernel.empty()) map[keys.back()].kernels.insert(r.kernel);
  }
  for (auto& k : s.profile.kernels)
    if (k.instr >= 0 && size_t(k.instr) < s.profile.instrs.size())
      map[keys[size_t(k.instr)]].device_kernels.insert(short_kernel(k.name));
  return map;
}

std::string names(const std::set<std::string>& set) { return join({set.begin(), set.end()}, ", "); }

void add_kernels(List& list, const ComparedSide& a, const ComparedSide& b) {
  if (a.recipe.is_null() || b.recipe.is_null()) return;  // an imported trace: all its kernels differ
  auto of_a = chosen(a), of_b = chosen(b);
  for (auto& [key, x] : of_a) {
    auto it = of_b.find(key);
    if (it == of_b.end()) continue;
    const Chosen& y = it->second;
    if (x.kernels != y.kernels)
      list.add("kernels", key, names(x.kernels), names(y.kernels));
    else if (!x.device_kernels.empty() && !y.device_kernels.empty())
      list.add("kernels", key, names(x.device_kernels), names(y.device_kernels));
  }
}

// Prefers the conditions after the run, when the machine was warm.
const Json* conditions(const ComparedSide& s) {
  if (const Json* after = member(s.record->environment_after, "conditions")) return after;
  return member(s.environment, "conditions");
}

// Readings always vary a little, so small changes are ignored.
void add_reading(List& list, const std::string& key, const Json& a, const Json& b, double least, const char* unit,
                 double least_part = 0) {
  double x = number(a, key, NAN), y = number(b, key, NAN);
  if (!std::isfinite(x) || !std::isfinite(y) || std::abs(x - y) < std::max(least, least_part * std::max(x, y))) return;
  list.add("conditions", key, fmt::format("{:.4g}{}", x, unit), fmt::format("{:.4g}{}", y, unit));
}

void add_conditions(List& list, const ComparedSide& a, const ComparedSide& b) {
  double x = a.profile.clock_mhz, y = b.profile.clock_mhz;
  if (x > 0 && y > 0 && std::abs(x - y) > 0.005 * std::max(x, y))
    list.add("conditions", "clock while measured", fmt::format("{:.0f} MHz", x), fmt::format("{:.0f} MHz", y));
  const Json *ca = conditions(a), *cb = conditions(b);
  if (!ca || !cb) return;
  add_reading(list, "other_load", *ca, *cb, 0.25, " CPUs");
  add_reading(list, "cpu_mhz", *ca, *cb, 0, " MHz", 0.02);
  const Json *ga = member(*ca, "gpu"), *gb = member(*cb, "gpu");
  if (!ga || !gb) return;
  add_reading(list, "sm_mhz", *ga, *gb, 0, " MHz", 0.01);
  add_reading(list, "memory_mhz", *ga, *gb, 1, " MHz");
  add_reading(list, "temperature_c", *ga, *gb, 10, " C");
  add_reading(list, "power_limit_watts", *ga, *gb, 1, " W");
  list.add("conditions", "throttle_reasons", member(*ga, "throttle_reasons"), member(*gb, "throttle_reasons"));
}

}  // namespace

std::vector<Difference> find_differences(const ComparedSide& a, const ComparedSide& b) {
  List list;
  add_settings(list, a, b);
  add_device(list, a, b);
  add_versions(list, a, b);
  add_kernels(list, a, b);
  add_conditions(list, a, b);
  return list.take();
}

}  // namespace crest
