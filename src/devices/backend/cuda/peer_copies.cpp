#include "backend/cuda/peer_copies.h"

#if CREST_HAVE_CUDA
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cuda/kernel.h"
#include "host/process.h"
#include "program/barriers.h"

namespace crest::cuda {

namespace {

// Handles of CUDA IPC belong to blocks of this size. What is smaller may be anywhere in a block.
constexpr size_t block = size_t(2) << 20;
constexpr int flag_stride = 32;  // words: flags of two ranks share no sector

// Each rank has the flags of a barrier for every other rank, which raises them when it arrives.
int64_t place_of(int flag, int rank) { return (int64_t(rank) * barrier_flags + flag) * flag_stride; }

struct Driver {
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr) = nullptr;
  CUresult (*memory_operations)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned) = nullptr;

  // Null: a driver without them.
  static const Driver* get() {
    static const Driver driver = [] {
      Driver d;
      auto find = [&](auto& function, const char* name, unsigned since) {
        void* f = nullptr;
        cudaDriverEntryPointQueryResult found;
        const auto code = cudaGetDriverEntryPointByVersion(name, &f, since, cudaEnableDefault, &found);
        if (code != cudaSuccess || found != cudaDriverEntryPointSuccess) f = nullptr;
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(f);
      };
      find(d.range, "cuMemGetAddressRange", 3020), find(d.memory_operations, "cuStreamBatchMemOp", 12000);
      return d;
    }();
    return driver.range && driver.memory_operations ? &driver : nullptr;
  }
};

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUstreamBatchMemOpParams write(const uint32_t* to, uint32_t value) {
  CUstreamBatchMemOpParams p = {};
  p.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  p.writeValue.address = number(to), p.writeValue.value = value;
  p.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all earlier writes
  return p;
}

CUstreamBatchMemOpParams wait_until(const uint32_t* flag, uint32_t value) {
  CUstreamBatchMemOpParams p = {};
  p.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  p.waitValue.address = number(flag), p.waitValue.value = value;
  p.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return p;
}

// By the stream itself, without a kernel: a kernel would wait for a free multiprocessor.
void enqueue(cudaStream_t stream, std::vector<CUstreamBatchMemOpParams> operations) {
  if (Driver::get()->memory_operations(stream, unsigned(operations.size()), operations.data(), 0) != CUDA_SUCCESS)
    fail("the driver refused to wait for another rank's flag", "GPU",
         "Use --tensor-overlap off, --kernel all_gather=*.communicator and --kernel reduce_scatter=*.communicator.");
}

// Of the allocation with this address.
char* beginning_of(const void* address) {
  CUdeviceptr base = 0;
  const Driver* driver = Driver::get();
  if (!driver || driver->range(&base, nullptr, number(address)) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<char*>(base);
}

// What a rank tells the others of an allocation. Texts of all ranks have one length.
struct Given {
  bool can = false;
  char boot[40] = {};  // id of the host's boot: a handle means nothing on another host
  size_t bytes = 0;
  cudaIpcMemHandle_t handle = {};

  std::string text() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  static Given of(const std::string& text) {
    Given g;
    std::memcpy(&g, text.data(), sizeof g);
    return g;
  }
};

Given given(char* base) {
  Given g;
  const std::string boot = this_process().boot;
  std::memcpy(g.boot, boot.data(), std::min(boot.size(), sizeof g.boot));
  g.can = base && reinterpret_cast<uintptr_t>(base) % block == 0 &&
          Driver::get()->range(nullptr, &g.bytes, number(base)) == CUDA_SUCCESS &&
          cudaIpcGetMemHandle(&g.handle, base) == cudaSuccess;
  return g;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "state of a capture");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

PeerCopies::~PeerCopies() {
  for (auto& [base, m] : allocations_) unmap(m);
  // flags_ stay until the process ends: other ranks may still have them mapped.
}

void PeerCopies::unmap(Mapped& m) const {
  for (size_t r = 0; r < m.size(); ++r)
    if (int(r) != rank_ && m[r]) cudaIpcCloseMemHandle(m[r]);
  m.clear();
}

const PeerCopies::Mapped& PeerCopies::mapped(char* base) {
  if (auto it = allocations_.find(base); it != allocations_.end()) return it->second;
  Mapped m(static_cast<size_t>(ranks_), nullptr);
  const Given own = given(base);
  std::vector<Given> all;
  for (auto& text : gather_(own.text())) all.push_back(Given::of(text));
  bool ok = std::all_of(all.begin(), all.end(), [&](auto& g) {
    return g.can && g.bytes == own.bytes && std::memcmp(g.boot, own.boot, sizeof g.boot) == 0;
  });
  for (int r = 0; ok && r < ranks_; ++r) {
    if (r == rank_) continue;
    void* there = nullptr;
    ok = cudaIpcOpenMemHandle(&there, all[size_t(r)].handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
    m[size_t(r)] = static_cast<char*>(there);
  }
  cudaGetLastError();  // a refusal is an answer
  for (auto& said : gather_(ok ? "1" : "0")) ok &= said == "1";
  if (!ok) unmap(m);
  if (ok) m[size_t(rank_)] = base;
  return allocations_.emplace(base, std::move(m)).first->second;
}

bool PeerCopies::is_usable(void* stream) {
  if (started_) return usable_;
  if (is_captured(static_cast<cudaStream_t>(stream))) return false;
  started_ = true;
  const size_t bytes = std::max(block, size_t(place_of(0, ranks_)) * sizeof *flags_);
  check(cudaMalloc(reinterpret_cast<void**>(&flags_), bytes), "memory of flags");
  // Done before others know the address: they get it on this stream.
  check(cudaMemsetAsync(flags_, 0, bytes, static_cast<cudaStream_t>(stream)), "memory of flags");
  // One rank without the driver's functions decides for all.
  return usable_ = !mapped(Driver::get() ? reinterpret_cast<char*>(flags_) : nullptr).empty();
}

bool PeerCopies::pull(void* stream, const void* place, void* in, int from, int64_t bytes) {
  auto* on = static_cast<cudaStream_t>(stream);
  char* base = beginning_of(place);
  if (!is_usable(stream) || (is_captured(on) && !allocations_.count(base))) return false;
  if (!base) fail_internal("a place of an exchange is in no allocation");
  const Mapped& there = mapped(base);
  if (there.empty()) return false;
  check(cudaMemcpyAsync(in, there[size_t(from)] + (static_cast<const char*>(place) - base), size_t(bytes),
                        cudaMemcpyDefault, on),
        "copy from another rank");
  return true;
}

void PeerCopies::arrive(void* stream, int flag) {
  if (flag == no_barrier || !is_usable(stream)) return;
  std::vector<CUstreamBatchMemOpParams> raised;
  const Mapped& flags = mapped(reinterpret_cast<char*>(flags_));
  for (int r = 0; r < ranks_; ++r)
    if (r != rank_) raised.push_back(write(reinterpret_cast<uint32_t*>(flags[size_t(r)]) + place_of(flag, rank_), 1));
  enqueue(static_cast<cudaStream_t>(stream), raised);
}

void PeerCopies::wait(void* stream, int flag) {
  if (flag == no_barrier || !is_usable(stream)) return;
  std::vector<CUstreamBatchMemOpParams> taken;
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const uint32_t* raised = flags_ + place_of(flag, r);
    taken.push_back(wait_until(raised, 1)), taken.push_back(write(raised, 0));
  }
  enqueue(static_cast<cudaStream_t>(stream), taken);
}

bool PeerCopies::forget(const void* allocation) {
  auto it = allocations_.find(static_cast<const char*>(allocation));
  if (it == allocations_.end()) return false;
  const bool was_mapped = !it->second.empty();
  unmap(it->second);
  allocations_.erase(it);
  return was_mapped;
}

}  // namespace crest::cuda
#endif
