#include "traces/memory_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/io.h"
#include "traces/memory_events.h"
#include "traces/pickle.h"

namespace crest {

namespace {

struct StackFrame {
  std::string filename;  // the viewer prints filename:line:name
  int line = 0;
  std::string name;
};

// A block of a segment. Blocks follow each other without gaps, since the viewer adds up their
// sizes.
struct MemoryPiece {
  int64_t offset = 0, bytes = 0;
  int persistent = -1;  // -1: free
};

class Snapshot {
 public:
  explicit Snapshot(const Profile& p) : p_(p), events_(memory_events(p)) {}

  std::string write() {
    out_.begin_dict();
    segments();
    traces();
    settings();
    out_.end_dict();
    return out_.finish();
  }

 private:
  void entry(std::string_view key, int64_t value) { out_.key(key), out_.integer(value); }
  void entry(std::string_view key, std::string_view value) { out_.key(key), out_.text(value); }

  // A stack is written once. Later uses refer to it.
  template <class Make>
  void frames(const std::string& id, Make make) {
    out_.key("frames");
    if (auto seen = stacks_.find(id); seen != stacks_.end()) return out_.recall(seen->second);
    out_.begin_list();
    for (const StackFrame& f : make()) {
      out_.begin_dict();
      entry("name", f.name);
      entry("filename", f.filename);
      entry("line", f.line);
      out_.end_dict();
    }
    out_.end_list();
    stacks_[id] = out_.remember();
  }

  void persistent_frames(int i) {
    frames(fmt::format("p{}", i), [&]() -> std::vector<StackFrame> {
      const ProfilePersistent& v = p_.memory.persistent[size_t(i)];
      return {{"before the step", 0, v.name}, {"category", 0, v.category}};
    });
  }

  void block_frames(int i) {
    frames(fmt::format("b{}", i), [&]() -> std::vector<StackFrame> {
      const ProfileBlock& b = p_.memory.blocks[size_t(i)];
      auto instr = std::find_if(p_.instrs.begin(), p_.instrs.end(), [&](const ProfileInstr& row) {
        return row.index == b.first && row.program == b.program;
      });
      std::string op = instr == p_.instrs.end() ? "instruction" : instr->op;
      return {{b.program, b.first, fmt::format("{} writes {}", op, b.name)},
              {"scope", 0, b.scope.empty() ? "none" : b.scope},
              {"phase", 0, b.phase},
              {"layer", std::max(0, b.layer), b.layer < 0 ? "outside" : fmt::format("layer {}", b.layer)},
              {"category", 0, b.category}};
    });
  }

  void arena_frames(const std::string& name) {
    frames(name, [&]() -> std::vector<StackFrame> { return {{"arena", 0, name + ": planned, allocated once"}}; });
  }

  std::vector<MemoryPiece> pieces(int64_t total) const {
    std::vector<MemoryPiece> taken, out;
    for (int i = 0; i < int(p_.memory.persistent.size()); ++i) {
      const ProfilePersistent& v = p_.memory.persistent[size_t(i)];
      if (v.bytes > 0) taken.push_back({v.offset, v.bytes, i});
    }
    std::sort(taken.begin(), taken.end(),
              [](const MemoryPiece& a, const MemoryPiece& b) { return a.offset < b.offset; });
    int64_t at = 0;
    for (auto& t : taken) {
      if (t.offset < at) continue;  // a view into the previous one
      if (t.offset > at) out.push_back({at, t.offset - at});
      out.push_back(t);
      at = t.offset + t.bytes;
    }
    if (at < total) out.push_back({at, total - at});
    return out;
  }

  void piece(int64_t base, const MemoryPiece& b) {
    out_.begin_dict();
    entry("address", base + b.offset);
    entry("size", b.bytes);
    entry("requested_size", b.persistent < 0 ? 0 : b.bytes);
    entry("state", b.persistent < 0 ? "inactive" : "active_allocated");
    if (b.persistent < 0)
      arena_frames("free");
    else
      persistent_frames(b.persistent);
    out_.end_dict();
  }

  void segment(const std::string& name, int64_t base, int64_t total, const std::vector<MemoryPiece>& blocks) {
    if (total <= 0) return;
    int64_t active = 0;
    for (auto& b : blocks) active += b.persistent < 0 ? 0 : b.bytes;
    out_.begin_dict();
    entry("device", 0);
    entry("address", base);
    entry("total_size", total);
    entry("allocated_size", active);
    entry("active_size", active);
    entry("requested_size", active);
    entry("stream", 0);
    entry("segment_type", "large");
    out_.key("segment_pool_id");
    out_.begin_list();
    out_.integer(0), out_.integer(0);
    out_.end_list();
    out_.key("is_expandable");
    out_.boolean(false);
    arena_frames(name);
    out_.key("blocks");
    out_.begin_list();
    for (auto& b : blocks) piece(base, b);
    out_.end_list();
    out_.end_dict();
  }

  int64_t persistent_bytes() const { return p_.memory.persistent.empty() ? 0 : transient() - persistent_address; }
  int64_t transient() const { return transient_address(p_); }
  int64_t transient_bytes() const {
    int64_t end = p_.memory.transient_bytes;
    for (auto& b : p_.memory.blocks) end = std::max(end, b.offset + b.bytes);
    return end;
  }

  void segments() {
    out_.key("segments");
    out_.begin_list();
    segment("persistent", persistent_address, persistent_bytes(), pieces(persistent_bytes()));
    segment("transient", transient(), transient_bytes(), {{0, transient_bytes()}});
    out_.end_list();
  }

  void event(const char* action, int64_t address, int64_t size, double ms, std::string_view category) {
    entry("action", action);
    entry("addr", address);
    entry("size", size);
    entry("stream", 0);
    entry("time_us", std::llround(ms * 1e3));
    // The viewer colors by category, and fails if no category is "unknown". The arenas use this
    // one.
    entry("category", category);
  }

  void arena_event(const std::string& name, int64_t base, int64_t size) {
    if (size <= 0) return;
    out_.begin_dict();
    event("segment_alloc", base, size, 0, "unknown");
    arena_frames(name);
    out_.end_dict();
  }

  void memory_event(const MemoryEvent& m, const char* action) {
    auto& category =
        m.block < 0 ? p_.memory.persistent[size_t(m.persistent)].category : p_.memory.blocks[size_t(m.block)].category;
    out_.begin_dict();
    event(action, address(p_, m), bytes(p_, m), m.ms, category);
    if (m.block < 0)
      persistent_frames(m.persistent);
    else
      block_frames(m.block);
    out_.end_dict();
  }

  void traces() {
    out_.key("device_traces");
    out_.begin_list();
    out_.begin_list();
    arena_event("persistent", persistent_address, persistent_bytes());
    arena_event("transient", transient(), transient_bytes());
    for (auto& e : events_) {
      if (e.alloc) {
        memory_event(e, "alloc");
      } else {
        memory_event(e, "free_requested");
        memory_event(e, "free_completed");
      }
    }
    out_.end_list();
    out_.end_list();
  }

  // Settings of PyTorch's allocator. Crest has no allocator, so only the backend has a meaning.
  void settings() {
    out_.key("allocator_settings");
    out_.begin_dict();
    entry("backend", "crest");
    entry("PYTORCH_CUDA_ALLOC_CONF", "");
    entry("max_split_size", -1);
    out_.key("garbage_collection_threshold");
    out_.number(0);
    for (auto* name : {"expandable_segments", "pinned_use_cuda_host_register"}) {
      out_.key(name);
      out_.boolean(false);
    }
    out_.end_dict();
    out_.key("external_annotations");
    out_.begin_list();
    out_.end_list();
  }

  const Profile& p_;
  std::vector<MemoryEvent> events_;
  PickleWriter out_;
  std::map<std::string, uint32_t> stacks_;
};

}  // namespace

std::string memory_snapshot(const Profile& profile) { return Snapshot(profile).write(); }

void write_memory_snapshot(const Profile& profile, const std::string& path) {
  write_file_atomic(path, memory_snapshot(profile));
}

}  // namespace crest
