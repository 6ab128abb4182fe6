#include "backend/cuda/cupti.h"

#if CREST_HAVE_CUDA
#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>

#include "backend/cuda/loader.h"
#include "core/error.h"

namespace crest::cuda {

namespace {

constexpr size_t buffer_bytes = 4 << 20;

struct Functions {
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped;
  decltype(&cuptiGetGraphNodeId) node_id;
  decltype(&cuptiGetResultString) text;
};

// CUPTI calls back on its own threads.
struct State {
  Functions f;
  std::mutex mutex;
  std::vector<WorkRecord> records;
  std::unordered_map<uint64_t, uint64_t> copies;  // id of a captured node -> id of the instantiated graph's
  size_t dropped = 0;
};

State& state() {
  static State s;
  return s;
}

void check_cupti(CUptiResult code, const char* what) {
  if (code == CUPTI_SUCCESS) return;
  const char* text = "unknown error";
  state().f.text(code, &text);
  bool taken = code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  fail(fmt::format("{}: {}", what, text), "CUPTI",
       taken ? "Another profiler (nsys, ncu) holds this process: run crest profile without it."
             : "crest profile --method timers needs no CUPTI.");
}

// The runtime's libraries carry major versions 12 and 13; the records read here have the same
// layout in both.
const Library& cupti_library() {
  const Library& newest = library("cupti", 13);
  if (newest.handle) return newest;
  const Library& older = library("cupti", 12);
  return older.handle ? older : newest;
}

std::string demangled(const char* name) {
  if (!name) return "kernel";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "memcpy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "memcpy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "memcpy device to device";
    default: return "memcpy";
  }
}

template <class Record>
void add(std::vector<WorkRecord>& to, const Record& r, std::string name) {
  to.push_back(
      {std::move(name), r.graphNodeId, int(r.streamId), double(r.start) * 1e-9, double(r.end - r.start) * 1e-9});
}

void add_record(std::vector<WorkRecord>& to, const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      auto& r = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
      return add(to, r, demangled(r.name));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      auto& r = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
      return add(to, r, copy_name(r.copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return add(to, reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(record), "memcpy from another device");
    case CUPTI_ACTIVITY_KIND_MEMSET: return add(to, reinterpret_cast<const CUpti_ActivityMemset4&>(record), "memset");
    default: return;
  }
}

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::malloc(buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *max_records = 0;
}

void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && s.f.next(buffer, valid, &record) == CUPTI_SUCCESS) add_record(s.records, *record);
  size_t dropped = 0;
  if (s.f.dropped(context, stream, &dropped) == CUPTI_SUCCESS) s.dropped += dropped;
  std::free(buffer);
}

void CUPTIAPI node_copied(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE || id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) return;
  auto* resource = static_cast<const CUpti_ResourceData*>(data);
  auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  State& s = state();
  uint64_t original = 0, copy = 0;
  if (s.f.node_id(graph->originalNode, &original) != CUPTI_SUCCESS) return;
  if (s.f.node_id(graph->node, &copy) != CUPTI_SUCCESS) return;
  std::lock_guard lock(s.mutex);
  s.copies[original] = copy;
}

}  // namespace

Cupti::Cupti() {
  const Library& lib = cupti_library();
  State& s = state();
  auto find = [&](auto& f, const char* name) { f = reinterpret_cast<std::decay_t<decltype(f)>>(symbol(lib, name)); };
  find(s.f.subscribe, "cuptiSubscribe");
  find(s.f.enable_callback, "cuptiEnableCallback");
  find(s.f.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(s.f.enable, "cuptiActivityEnable");
  find(s.f.disable, "cuptiActivityDisable");
  find(s.f.flush, "cuptiActivityFlushAll");
  find(s.f.next, "cuptiActivityGetNextRecord");
  find(s.f.dropped, "cuptiActivityGetNumDroppedRecords");
  find(s.f.node_id, "cuptiGetGraphNodeId");
  find(s.f.text, "cuptiGetResultString");
  static CUpti_SubscriberHandle subscriber;
  check_cupti(s.f.subscribe(&subscriber, node_copied, nullptr), "subscription");
  check_cupti(s.f.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED),
              "callback for graph nodes");
  check_cupti(s.f.register_callbacks(buffer_requested, buffer_completed), "registration of buffers");
}

Cupti& Cupti::get() {
  static Cupti cupti;
  return cupti;
}

void Cupti::record(bool on) {
  State& s = state();
  for (auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                    CUPTI_ACTIVITY_KIND_MEMSET})
    check_cupti(on ? s.f.enable(kind) : s.f.disable(kind), on ? "start of recording" : "end of recording");
}

std::vector<WorkRecord> Cupti::take() {
  State& s = state();
  check_cupti(s.f.flush(0), "flush of records");
  std::lock_guard lock(s.mutex);
  if (s.dropped)
    fail(fmt::format("{} records were dropped", std::exchange(s.dropped, 0)), "CUPTI",
         "Profile fewer steps at once, or a smaller model.");
  return std::exchange(s.records, {});
}

uint64_t Cupti::id_of(cudaGraphNode_t node) const {
  State& s = state();
  uint64_t id = 0;
  check_cupti(s.f.node_id(node, &id), "id of a graph node");
  std::lock_guard lock(s.mutex);
  auto it = s.copies.find(id);
  return it == s.copies.end() ? id : it->second;
}

}  // namespace crest::cuda
#endif
