#include "traces/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/io.h"
#include "traces/memory_events.h"
#include "traces/trace_slices.h"

namespace crest {

namespace {

using OrderedJson = nlohmann::ordered_json;

// Invalid UTF-8 in names is replaced.
std::string text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// Microseconds with three decimals: exact for whole nanoseconds.
std::string us(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

class Writer {
 public:
  Writer(const Profile& p, std::vector<TraceSlice> slices) : p_(p), slices_(std::move(slices)) {}

  std::string run() {
    header();
    names();
    for (auto& s : slices_) slice(s);
    arrows();
    memory();
    // The recipe and other context, since additional top-level keys are metadata.
    put("\n],\n\"traceName\": \"crest profile\",\n\"crest\": {}\n}}\n",
        text({{"recipe", p_.recipe}, {"phase", p_.phase}, {"method", p_.method}, {"step_ms", p_.step_ms}}));
    return std::move(out_);
  }

 private:
  template <class... A>
  void put(fmt::format_string<A...> format, A&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<A>(args)...);
  }

  template <class... A>
  void event(fmt::format_string<A...> format, A&&... args) {
    out_ += first_ ? "\n{" : ",\n{";
    first_ = false;
    put(format, std::forward<A>(args)...);
    out_ += '}';
  }

  bool gpu() const { return !p_.kernels.empty(); }

  void header() {
    OrderedJson devices = OrderedJson::array();
    if (gpu())
      devices.push_back({{"id", 0},
                         {"name", p_.device.is_object() ? p_.device.value("name", "") : ""},
                         {"totalGlobalMem", p_.device.is_object() ? p_.device.value("memory_bytes", int64_t(0)) : 0}});
    put("{{\n\"schemaVersion\": 1,\n\"deviceProperties\": {},\n", text(devices));
    put("\"distributedInfo\": {{\"backend\": \"none\", \"rank\": 0, \"world_size\": 1}},\n");
    put("\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": 0,\n\"traceEvents\": [");
  }

  void process(int pid, const std::string& name, const std::string& label, int order) {
    event(R"("name": "process_name", "ph": "M", "ts": 0, "pid": {}, "tid": 0, "args": {{"name": {}}})", pid,
          text(name));
    event(R"("name": "process_labels", "ph": "M", "ts": 0, "pid": {}, "tid": 0, "args": {{"labels": {}}})", pid,
          text(label));
    event(R"("name": "process_sort_index", "ph": "M", "ts": 0, "pid": {}, "tid": 0, "args": {{"sort_index": {}}})", pid,
          order);
  }

  void names() {
    process(host_process, "crest", "CPU", 1);
    if (gpu()) process(0, "crest", "GPU 0", 2);
    std::set<TraceTrack> tracks;
    for (auto& s : slices_) tracks.insert(s.track);
    static const char* names[] = {
        "", "step, calls, phases, instructions", "communication", "copies", "copies back", "gradients"};
    for (auto& t : tracks) {
      int number = t.thread % overflow_threads;
      std::string name = t.process == host_process ? names[number] : fmt::format("stream {}", number);
      if (t.thread >= overflow_threads) name += " (at the same time)";
      event(R"("name": "thread_name", "ph": "M", "ts": 0, "pid": {}, "tid": {}, "args": {{"name": {}}})", t.process,
            t.thread, text(name));
      event(R"("name": "thread_sort_index", "ph": "M", "ts": 0, "pid": {}, "tid": {}, "args": {{"sort_index": {}}})",
            t.process, t.thread, number);
    }
  }

  void slice(const TraceSlice& s) {
    event(R"("ph": "X", "cat": {}, "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {})",
          text(s.category), text(s.name), s.track.process, s.track.thread, us(s.start_ns), us(s.end_ns - s.start_ns),
          text(s.args));
  }

  // Arrows from an instruction to its kernels.
  void arrows() {
    std::map<int64_t, const TraceSlice*> instructions;
    for (auto& s : slices_)
      if (s.instruction > 0 && s.correlation == 0) instructions[s.instruction] = &s;
    auto end = [&](char phase, const TraceSlice& on, const TraceSlice& kernel) {
      event(R"("ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "ac2g", "name": "ac2g"{})", phase,
            kernel.correlation, on.track.process, on.track.thread, us(kernel.start_ns),
            phase == 'f' ? R"(, "bp": "e")" : "");
    };
    for (auto& s : slices_) {
      if (s.correlation == 0 || s.instruction == 0) continue;
      end('s', *instructions.at(s.instruction), s);
      end('f', s, s);
    }
  }

  // Every allocation and free as a Kineto [memory] event, and bytes by category as counters.
  void memory() {
    int64_t allocated = 0, reserved = 0;
    std::map<std::string, int64_t> by_category;
    auto events = memory_events(p_);
    for (auto& e : events) {
      reserved = std::max(reserved, address(p_, e) + bytes(p_, e) - persistent_address);
      by_category[category(e)] = 0;  // importers read a counter's series from its first value
    }
    for (size_t i = 0; i < events.size(); ++i) {
      const MemoryEvent& e = events[i];
      int64_t change = e.alloc ? bytes(p_, e) : -bytes(p_, e);
      allocated += change;
      by_category[category(e)] += change;
      auto at = int64_t(e.ms * 1e6 + 0.5);
      event(R"("ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": {}, "tid": 1, "ts": {}, )"
            R"("args": {{"Total Reserved": {}, "Total Allocated": {}, "Bytes": {}, "Addr": {}, "Device Id": {}, )"
            R"("Device Type": {}, "name": {}}})",
            host_process, us(at), reserved, allocated, change, address(p_, e), gpu() ? 0 : -1, gpu() ? 1 : 0,
            text(name(e)));
      if (i + 1 == events.size() || events[i + 1].ms != e.ms) counter(at, by_category);
    }
  }

  void counter(int64_t at, const std::map<std::string, int64_t>& by_category) {
    event(R"("ph": "C", "name": "memory", "pid": {}, "ts": {}, "args": {})", host_process, us(at), text(by_category));
  }

  const std::string& category(const MemoryEvent& e) const {
    return e.block < 0 ? p_.memory.persistent[size_t(e.persistent)].category
                       : p_.memory.blocks[size_t(e.block)].category;
  }
  const std::string& name(const MemoryEvent& e) const {
    return e.block < 0 ? p_.memory.persistent[size_t(e.persistent)].name : p_.memory.blocks[size_t(e.block)].name;
  }

  const Profile& p_;
  std::vector<TraceSlice> slices_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string chrome_trace(const Profile& profile) { return Writer(profile, trace_slices(profile)).run(); }

void write_chrome_trace(const Profile& profile, const std::string& path) {
  write_file_atomic(path, chrome_trace(profile));
}

}  // namespace crest
