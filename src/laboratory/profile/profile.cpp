#include "profile/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "profile/overlap.h"
#include "stats/samples.h"

namespace crest {

namespace {

// Sums by key in order of appearance, sorted at the end.
class Shares {
 public:
  ProfileShare& at(const std::string& key) {
    auto [it, added] = index_.emplace(key, list_.size());
    if (added) list_.push_back({.key = key});
    return list_[it->second];
  }
  void add(const std::string& key, const ProfileInstr& r) {
    ProfileShare& s = at(key);
    ++s.instructions;
    s.launches += r.calls;
    s.ms += r.ms, s.floor_ms += r.floor_ms, s.flops += r.flops, s.bytes += r.bytes;
  }
  std::vector<ProfileShare> sorted() {
    std::stable_sort(list_.begin(), list_.end(), [](auto& a, auto& b) { return a.ms > b.ms; });
    return std::move(list_);
  }

 private:
  std::map<std::string, size_t> index_;
  std::vector<ProfileShare> list_;
};

template <class Key>
std::vector<ProfileShare> sums(const Profile& p, Key key) {
  Shares shares;
  for (auto& r : p.instrs) shares.add(key(r), r);
  return shares.sorted();
}

// "h.3.attn.qkv" and "h.4.attn.qkv" are the same place: "h.*.attn.qkv".
std::string place_of(const std::vector<std::string>& scopes) {
  std::vector<std::string> places;
  for (auto& scope : scopes) {
    std::string place = scope;
    size_t digits = 0;
    if (scope.starts_with("h."))
      while (2 + digits < scope.size() && scope[2 + digits] >= '0' && scope[2 + digits] <= '9') ++digits;
    if (digits) place = "h.*" + scope.substr(2 + digits);
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return fmt::format("{}", fmt::join(places, "+"));
}

size_t category_of(const std::string& text) {
  for (int c = 0; c < category_count; ++c)
    if (name(Category(c)) == text) return size_t(c);
  fail_internal(fmt::format("'{}' is not a memory category", text), "profile");
}

}  // namespace

std::vector<int64_t> dimensions(const std::string& type) {
  const size_t open = type.find('[');
  if (open == std::string::npos || type.back() != ']') return {};
  std::vector<int64_t> sizes;
  for (auto& text : split(std::string_view(type).substr(open + 1, type.size() - open - 2), ',')) {
    int64_t size = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, size);
    if (error != std::errc() || end != last || size < 1) return {};
    sizes.push_back(size);
  }
  return sizes;
}

double Profile::step_median_ms() const { return Samples(step_ms).median(); }
std::optional<double> Profile::joules_per_token() const {
  if (!power_w || tokens <= 0) return std::nullopt;
  return *power_w * step_median_ms() * 1e-3 / double(tokens);
}

double ProfileRank::waiting_sum_ms() const { return std::accumulate(waiting_ms.begin(), waiting_ms.end(), 0.0); }

double Profile::profiled_median_ms() const { return Samples(profiled_ms).median(); }

double Profile::rate(const std::string& wanted) const {
  for (auto& r : rates)
    if (r.name == wanted) return r.per_second;
  return 0;
}

std::vector<ProfileShare> by_phase(const Profile& p) {
  Shares shares;
  for (auto& r : p.instrs) shares.add(communicates(r) ? "communication" : r.phase, r);
  for (auto& k : p.kernels)
    if (k.instr < 0) {
      ProfileShare& s = shares.at("copies");
      s.launches += k.count, s.ms += k.ms;
    }
  shares.at("idle").ms += p.idle_ms;
  return shares.sorted();
}

std::vector<ProfileShare> by_layer(const Profile& p) {
  return sums(p, [](auto& r) { return r.layer < 0 ? std::string("outside") : fmt::format("layer {}", r.layer); });
}

std::vector<ProfileShare> by_class(const Profile& p) {
  return sums(p, [](auto& r) { return r.op_class; });
}

std::vector<ProfileShare> by_instruction(const Profile& p) {
  return sums(p, [](auto& r) {
    return fmt::format("{}[{}] {} {} {} {}", r.program, r.index, r.kernel, r.phase, fmt::join(r.scopes, "+"), r.type);
  });
}

std::vector<ProfileShare> by_place(const Profile& p) {
  return sums(p, [](auto& r) { return fmt::format("{} {} {}", r.kernel, r.phase, place_of(r.scopes)); });
}

std::vector<ProfileShare> by_kernel(const Profile& p) {
  if (p.kernels.empty()) return sums(p, [](auto& r) { return r.kernel; });
  std::vector<double> time(p.instrs.size());  // of all kernels of an instruction
  for (auto& k : p.kernels)
    if (k.instr >= 0) time[size_t(k.instr)] += k.ms;
  Shares shares;
  for (auto& k : p.kernels) {
    ProfileShare& s = shares.at(k.name);
    s.launches += k.count, s.ms += k.ms;
    if (k.instr < 0) continue;
    const ProfileInstr& r = p.instrs[size_t(k.instr)];
    double part = time[size_t(k.instr)] > 0 ? k.ms / time[size_t(k.instr)] : 0;
    ++s.instructions;
    s.floor_ms += part * r.floor_ms, s.flops += part * r.flops, s.bytes += part * r.bytes;
  }
  return shares.sorted();
}

std::vector<MemoryPoint> memory_timeline(const Profile& p) {
  CategoryBytes persistent{};
  for (auto& b : p.memory.persistent) persistent[category_of(b.category)] += b.bytes;
  struct OfProgram {
    std::vector<int> rows;               // of Profile::instrs
    std::vector<CategoryBytes> changes;  // at each instruction and after the last one
  };
  std::map<std::string, OfProgram> programs;
  for (size_t i = 0; i < p.instrs.size(); ++i) programs[p.instrs[i].program].rows.push_back(int(i));
  for (auto& [name, program] : programs) program.changes.resize(program.rows.size() + 1);
  for (auto& b : p.memory.blocks) {
    auto& changes = programs[b.program].changes;
    if (b.first < 0 || b.last < b.first || size_t(b.last) + 1 >= changes.size())
      fail_internal(fmt::format("block '{}' is live at no instruction", b.name), "profile");
    size_t c = category_of(b.category);
    changes[size_t(b.first)][c] += b.bytes;
    changes[size_t(b.last) + 1][c] -= b.bytes;
  }
  std::vector<MemoryPoint> points;
  for (size_t call = 0; call < p.calls.size(); ++call) {
    const OfProgram& program = programs[p.calls[call]];
    CategoryBytes live = persistent;
    for (size_t i = 0; i < program.rows.size(); ++i) {
      for (size_t c = 0; c < live.size(); ++c) live[c] += program.changes[i][c];
      points.push_back({.call = int(call), .index = int(i), .instr = program.rows[i], .bytes = live});
    }
  }
  return points;
}

}  // namespace crest
