// Profile <-> JSON. Both directions use the same list of fields, so they always agree.
#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <map>
#include <type_traits>

#include "core/error.h"
#include "core/text.h"
#include "profile/class_label.h"
#include "profile/profile.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

template <class R, class T>
concept Is = std::same_as<std::remove_const_t<R>, T>;

template <class F, Is<ProfileInstr> R>
void fields(F& f, R& r) {
  f("program", r.program), f("index", r.index), f("op", r.op), f("parts", r.parts), f("kernel", r.kernel);
  f("phase", r.phase), f("lane", r.stream), f("op_class", r.op_class), f("scopes", r.scopes), f("layer", r.layer);
  f("type", r.type), f("arithmetic", r.arithmetic), f("calls", r.calls), f("flops", r.flops), f("bytes", r.bytes);
  f("ms", r.ms), f("floor_ms", r.floor_ms);
}

template <class F, Is<ProfileKernel> R>
void fields(F& f, R& r) {
  f("name", r.name), f("instr", r.instr), f("count", r.count), f("ms", r.ms), f("min_ms", r.min_ms);
  f("max_ms", r.max_ms);
}

template <class F, Is<ProfileBlock> R>
void fields(F& f, R& r) {
  f("name", r.name), f("program", r.program), f("category", r.category), f("phase", r.phase), f("scope", r.scope);
  f("layer", r.layer), f("offset", r.offset), f("bytes", r.bytes), f("first", r.first), f("last", r.last);
}

template <class F, Is<ProfilePersistent> R>
void fields(F& f, R& r) {
  f("name", r.name), f("category", r.category), f("offset", r.offset), f("bytes", r.bytes);
}

template <class F, Is<ProfileMemoryPart> R>
void fields(F& f, R& r) {
  f("part", r.part), f("start_bytes", r.start_bytes), f("peak_bytes", r.peak_bytes), f("end_bytes", r.end_bytes);
}

template <class F, Is<ProfileMemory> R>
void fields(F& f, R& r) {
  f("planned_bytes", r.planned_bytes), f("persistent_bytes", r.persistent_bytes);
  f("transient_bytes", r.transient_bytes), f("measured_peak_bytes", r.measured_peak_bytes);
  f("device_peak_bytes", r.device_peak_bytes), f("persistent", r.persistent), f("blocks", r.blocks);
  f.optional("host_bytes", r.host_bytes), f.optional("process", r.process);
}

template <class F, Is<ProfileRate> R>
void fields(F& f, R& r) {
  f("name", r.name), f("per_second", r.per_second), f("source", r.source);
}

template <class F, Is<ProfileRank> R>
void fields(F& f, R& r) {
  f("rank", r.rank), f("step_ms", r.step_ms), f("compute_ms", r.compute_ms), f("hidden_ms", r.hidden_ms);
  f("exposed_ms", r.exposed_ms), f("waiting_ms", r.waiting_ms), f("host_ms", r.host_ms);
  f("idle_ms", r.idle_ms);
  f("recording_ms", r.recording_ms), f("offset_ms", r.offset_ms);
}

template <class F, Is<Profile> R>
void fields(F& f, R& r) {
  f("recipe", r.recipe), f("device", r.device), f("environment", r.environment), f("phase", r.phase);
  f("method", r.method), f("tokens", r.tokens), f("model_flops", r.model_flops), f("step_ms", r.step_ms);
  f("throttled", r.throttled), f("throttle_reasons", r.throttle_reasons);
  f("profiled_ms", r.profiled_ms), f("kept_ms", r.kept_ms), f("span_ms", r.span_ms), f("busy_ms", r.busy_ms),
      f("idle_ms", r.idle_ms), f("recording_ms", r.recording_ms);
  f("launches", r.launches), f("clock_mhz", r.clock_mhz), f("power_w", r.power_w), f("rates", r.rates),
      f("calls", r.calls);
  f("instrs", r.instrs), f("kernels", r.kernels), f("intervals", r.intervals), f("memory", r.memory);
  f("ranks", r.ranks), f.optional("pipeline", r.pipeline);
}

// Intervals are numerous: one row of numbers each.
constexpr size_t interval_fields = 6;

struct Writer {
  Json json = Json::object();

  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = of(value);
  }
  void operator()(const char* key, const std::optional<double>& value) {
    json[key] = value ? Json(*value) : Json(nullptr);
  }
  template <class T>
  void optional(const char* key, const T& value) {
    json[key] = of(value);
  }
  void optional(const char* key, const Json& value) {
    if (!value.is_null()) json[key] = value;
  }

 private:
  template <class T>
  static Json of(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string> || std::same_as<T, Json>) {
      return value;
    } else {
      Writer w;
      fields(w, value);
      return std::move(w.json);
    }
  }
  template <class T>
  static Json of(const std::vector<T>& list) {
    Json out = Json::array();
    for (auto& x : list) out.push_back(of(x));
    return out;
  }
  static Json of(const ProfileInterval& i) {
    return Json::array({i.instr, i.kernel, i.call, i.stream, i.start_ms, i.ms});
  }
};

class Reader {
 public:
  Reader(const Json& json, std::string where, std::string path)
      : json_(json), where_(std::move(where)), path_(std::move(path)) {
    if (!json_.is_object()) wrong("an object");
  }

  template <class T>
  void operator()(const char* key, T& value) {
    auto it = json_.find(key);
    std::string path = path_.empty() ? key : path_ + "." + key;
    if (it == json_.end()) refuse(fmt::format("key '{}' is missing", printable(path)));
    read(*it, value, path);
  }
  void operator()(const char* key, std::vector<ProfileRank>& value) {
    if (auto it = json_.find(key); it != json_.end()) read(*it, value, path_.empty() ? key : path_ + "." + key);
  }
  // Missing in profiles of earlier versions.
  template <class T>
  void optional(const char* key, T& value) {
    if (json_.contains(key)) (*this)(key, value);
  }
  // Missing in profiles of earlier versions, and on machines without this reading.
  void operator()(const char* key, std::optional<double>& value) {
    auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) return value.reset();
    read(*it, value.emplace(), path_.empty() ? key : path_ + "." + key);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail("not a profile: " + what, printable(where_),
         "The text is damaged or was written by another version of Crest.");
  }
  [[noreturn]] void wrong(const char* wanted, const std::string& path = "") const {
    refuse(
        fmt::format("{} is not {}", path.empty() ? path_.empty() ? "it" : printable(path_) : printable(path), wanted));
  }

  void read(const Json& j, std::string& to, const std::string& path) const {
    if (!j.is_string()) wrong("a string", path);
    to = j.get<std::string>();
  }
  void read(const Json& j, double& to, const std::string& path) const {
    constexpr double most = 1e30;  // beyond any measurement; sums would lose all smaller values
    if (!j.is_number() || !(std::abs(j.get<double>()) <= most)) wrong("a number up to 1e30", path);
    to = j.get<double>();
  }
  template <std::integral T>
  void read(const Json& j, T& to, const std::string& path) const {
    if (!j.is_number_integer()) wrong("a whole number", path);
    auto value = j.get<int64_t>();  // larger numbers wrap to negative ones; only -1 is allowed
    if (value < -1 || value > int64_t(std::numeric_limits<T>::max())) wrong("in range", path);
    to = T(value);
  }
  void read(const Json& j, Json& to, const std::string& path) const {
    if (!j.is_object() && !j.is_null()) wrong("an object", path);
    to = j;
  }
  void read(const Json& j, ProfileInterval& i, const std::string& path) const {
    if (!j.is_array() || j.size() != interval_fields) wrong("a row of 6 numbers", path);
    read(j[0], i.instr, path), read(j[1], i.kernel, path), read(j[2], i.call, path), read(j[3], i.stream, path);
    read(j[4], i.start_ms, path), read(j[5], i.ms, path);
  }
  template <class T>
  void read(const Json& j, std::vector<T>& to, const std::string& path) const {
    if (!j.is_array()) wrong("a list", path);
    to.resize(j.size());
    for (size_t i = 0; i < j.size(); ++i) read(j[i], to[i], fmt::format("{}[{}]", path, i));
  }
  template <class T>
  requires requires(Reader& r, T& t) { fields(r, t); }
  void read(const Json& j, T& to, const std::string& path) const {
    Reader inner(j, where_, path);
    fields(inner, to);
  }

  const Json& json_;
  std::string where_, path_;
};

// Checks that indices are valid.
class Check {
 public:
  Check(const Profile& p, const std::string& where) : p_(p), where_(where) {}

  void run() {
    expect(p_.throttled.empty() || p_.throttled.size() == p_.step_ms.size(), "throttled",
           "must have as many entries as step_ms");
    std::map<std::string, int> length;  // instructions of each Program
    for (auto& r : p_.instrs) {
      expect(r.index == length[r.program]++, "instrs", "rows are not in the order of their Programs");
      expect(r.calls >= 0, "instrs", "negative number of calls");
    }
    for (auto& c : p_.calls)
      expect(length.count(c) > 0, "calls", fmt::format("'{}' has no instructions", printable(c)));
    for (auto& k : p_.kernels) row(k.instr, p_.instrs.size(), "kernels");
    for (auto& i : p_.intervals) {
      row(i.instr, p_.instrs.size(), "intervals");
      row(i.kernel, p_.kernels.size(), "intervals");
      expect(i.call >= 0 && size_t(i.call) < p_.calls.size(), "intervals", "a call that the step does not have");
    }
    for (auto& r : p_.ranks)
      expect(r.waiting_ms.size() == p_.ranks.size(), "ranks", "waiting_ms must have an entry for each rank");
    for (auto& b : p_.memory.blocks) {
      category(b.category, "memory.blocks");
      bool in_program = length.count(b.program) && b.first >= 0 && b.first <= b.last && b.last < length[b.program];
      expect(in_program, "memory.blocks", fmt::format("'{}' is live at no instruction", printable(b.name)));
      expect(b.offset >= 0 && b.bytes >= 0, "memory.blocks", "a negative size");
    }
    for (auto& b : p_.memory.persistent) {
      category(b.category, "memory.persistent");
      expect(b.offset >= 0 && b.bytes >= 0, "memory.persistent", "a negative size");
    }
  }

 private:
  void expect(bool ok, const char* key, const std::string& what) const {
    if (!ok)
      fail(fmt::format("not a profile: '{}': {}", key, what), printable(where_),
           "The text is damaged or was written by another version of Crest.");
  }
  void row(int index, size_t rows, const char* key) const {
    expect(index >= -1 && index < int(rows), key, fmt::format("row {} of {}", index, rows));
  }
  void category(const std::string& text, const char* key) const {
    for (int c = 0; c < category_count; ++c)
      if (name(Category(c)) == text) return;
    expect(false, key, fmt::format("'{}' is not a memory category", printable(text)));
  }

  const Profile& p_;
  const std::string& where_;
};

}  // namespace

Json to_json(const Profile& profile) {
  Writer w;
  fields(w, profile);
  return std::move(w.json);
}

Profile profile_from_json(const Json& json, const std::string& where) {
  Profile profile;
  Reader r(json, where, "");
  fields(r, profile);
  for (auto& row : profile.instrs) row.op = read_op_class(row.op), row.op_class = read_op_class(row.op_class);
  Check(profile, where).run();
  return profile;
}

}  // namespace crest
