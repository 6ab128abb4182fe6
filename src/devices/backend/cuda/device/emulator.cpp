#include "backend/cuda/device/emulator.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device/emulator_fiber.h"
#include "core/error.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace crest::cuda::emulator {

namespace {

enum class State { runnable, at_barrier, in_warp, returned };

struct Thread {
  std::unique_ptr<Fiber> fiber;
  State state = State::returned;
  uint3 index = {};
  Site site = {};  // where it waits
  // Of the warp operation it waits in.
  WarpOp op = WarpOp::sync;
  unsigned mask = 0, source = 0;
  uint64_t value = 0, result = 0;
  const void* given = nullptr;  // to together(), with the work
  void (*work)(const void* const* given) = nullptr;
};

struct Warp {
  unsigned live = 0, waiting = 0;  // masks of lanes
};

struct Barrier {
  unsigned waiting = 0, last = 0;  // `last`: a waiting thread
  int true_predicates = 0;
  int result = 0, threads = 0;  // of the last completed barrier
};

std::vector<Thread> threads;
std::vector<Warp> warps;
Barrier block_barrier;
unsigned count = 0, live = 0;  // threads of the block, and threads not returned
unsigned now = 0;              // the running thread
void (*thread_body)(const void*) = nullptr;
const void* body_context = nullptr;
void* shared_memory = nullptr;
std::exception_ptr error;
unsigned order_of_launch = 0;

std::string where(const Site& s) {
  std::string file = s.file;
  return fmt::format("{} ({}:{})", s.call, file.substr(file.rfind('/') + 1), s.line);
}
std::string name_of(unsigned t) {
  const uint3& i = threads[t].index;
  return fmt::format("thread ({},{},{}) of block ({},{},{})", i.x, i.y, i.z, blockIdx.x, blockIdx.y, blockIdx.z);
}
bool same_place(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || !std::strcmp(a.file, b.file));
}
[[noreturn]] void misuse(const std::string& what) { fail_internal("emulated CUDA kernel: " + what); }

// Out of line, so the frame of warp() stays small:
// it is on the stack of every waiting thread.
[[noreturn, gnu::noinline, gnu::cold]] void report_mask(unsigned mask, unsigned live_mask, Site site) {
  if (!(mask >> now % 32 & 1))
    misuse(fmt::format("{} is not in its own mask {:#x} at {}", name_of(now), mask, where(site)));
  misuse(fmt::format("{}: mask {:#x} at {} names lanes {:#x}, which have returned or are beyond the block",
                     name_of(now), mask, where(site), mask & ~live_mask));
}
[[noreturn, gnu::noinline, gnu::cold]] void report_divergence(const char* what, unsigned other, Site site) {
  misuse(fmt::format("{} is at {}, while {}{} is at {}", name_of(now), where(site), name_of(other), what,
                     where(threads[other].site)));
}

void release_barrier() {
  block_barrier.result = block_barrier.true_predicates, block_barrier.threads = int(block_barrier.waiting);
  block_barrier.true_predicates = 0, block_barrier.waiting = 0;
  for (unsigned t = 0; t < count; ++t)
    if (threads[t].state == State::at_barrier) threads[t].state = State::runnable;
}

// The result of a lane once all lanes of its mask have come.
void complete(unsigned first, unsigned mask) {
  const Thread& self = threads[now];
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    unsigned l = unsigned(__builtin_ctz(rest));
    Thread& t = threads[first + l];
    if (t.op != self.op || !same_place(t.site, self.site) || (t.op == WarpOp::together && t.work != self.work))
      report_divergence(" of the same warp and mask", first + l, self.site);
    switch (t.op) {
      case WarpOp::sync:
      case WarpOp::together: break;
      case WarpOp::exchange:  // a lane outside the mask has no defined value
        t.result = mask >> t.source & 1 ? threads[first + t.source].value : ~uint64_t(0);
        break;
      case WarpOp::ballot:
      case WarpOp::match: {
        t.result = 0;
        for (unsigned r = mask; r; r &= r - 1) {
          unsigned o = unsigned(__builtin_ctz(r));
          uint64_t v = threads[first + o].value;
          if (t.op == WarpOp::ballot ? v != 0 : v == t.value) t.result |= uint64_t(1) << o;
        }
      }
    }
    t.state = State::runnable;
  }
  if (self.op != WarpOp::together) return;
  const void* given[32];
  for (unsigned l = 0; l < 32; ++l) given[l] = threads[first + l].given;
  self.work(given);
}

void thread_returned() {
  Thread& self = threads[now];
  self.state = State::returned;
  --live;
  Warp& w = warps[now / 32];
  w.live &= ~(1u << now % 32);
  for (unsigned rest = w.waiting; rest; rest &= rest - 1) {
    unsigned t = now / 32 * 32 + unsigned(__builtin_ctz(rest));
    if (threads[t].mask >> now % 32 & 1)
      misuse(fmt::format("{} returned, while {} waits for it at {} with mask {:#x}", name_of(now), name_of(t),
                         where(threads[t].site), threads[t].mask));
  }
  if (live && block_barrier.waiting == live) release_barrier();
}

// Runs one thread after the other, each when the scheduler resumes the fiber anew.
void fiber_main() {
  for (;;) {
    try {
      thread_body(body_context);
      thread_returned();
    } catch (...) {
      error = std::current_exception();
    }
    Fiber::suspend();
  }
}

[[noreturn]] void report_deadlock() {
  std::string list;
  std::vector<std::string> seen;
  for (unsigned t = 0; t < count; ++t) {
    if (threads[t].state == State::returned) continue;
    std::string place = where(threads[t].site);
    if (threads[t].state == State::in_warp) place += fmt::format(" with mask {:#x}", threads[t].mask);
    if (std::find(seen.begin(), seen.end(), place) != seen.end()) continue;
    seen.push_back(place);
    list += fmt::format("{}{} waits at {}", list.empty() ? "" : ", ", name_of(t), place);
  }
  misuse("deadlock: " + list);
}

enum class Order { forward, reverse, shuffled, varied };
Order chosen_order() {
  const char* text = std::getenv("CREST_EMULATOR_ORDER");
  std::string s = text ? text : "";
  if (s.empty()) return Order::varied;
  if (s == "forward") return Order::forward;
  if (s == "reverse") return Order::reverse;
  if (s == "shuffled") return Order::shuffled;
  fail_usage("'" + s + "' is no order", "CREST_EMULATOR_ORDER", "forward, reverse or shuffled");
}

void run_block(uint64_t number, Order fixed) {
  live = count;
  block_barrier = {};
  for (unsigned w = 0; w * 32 < count; ++w)
    warps[w] = {count - w * 32 >= 32 ? 0xffffffffu : (1u << (count - w * 32)) - 1, 0};
  for (unsigned t = 0; t < count; ++t) threads[t].state = State::runnable;
  for (uint64_t pass = number + order_of_launch; live; ++pass) {
    Order order = fixed == Order::varied ? Order(pass % 3) : fixed;
    bool progress = false;
    // The k-th thread of a pass is first + k * stride; 7919 and 104729 are primes.
    unsigned stride = order == Order::forward ? 1 : order == Order::reverse ? count - 1 : 7919 % count;
    unsigned next = order == Order::forward ? 0 : order == Order::reverse ? count - 1 : unsigned(pass * 104729 % count);
    for (unsigned k = 0; k < count; ++k) {
      unsigned t = next;
      next += stride;
      if (next >= count) next -= count;
      if (threads[t].state != State::runnable) continue;
      progress = true;
      now = t, threadIdx = threads[t].index;
      threads[t].fiber->resume();
      if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }
    if (!progress) report_deadlock();
  }
}

void prepare_threads(dim3 block) {
  count = block.x * block.y * block.z;
  if (threads.size() < count) threads.resize(count);
  if (warps.size() < (count + 31) / 32) warps.resize((count + 31) / 32);
  for (unsigned t = 0; t < count; ++t) {
    threads[t].index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
    if (!threads[t].fiber) threads[t].fiber = std::make_unique<Fiber>(fiber_main, t);
  }
}

// Waits until another thread makes this one runnable.
void wait(State state, Site site) {
  threads[now].state = state, threads[now].site = site;
  Fiber::suspend();
}

}  // namespace

void set_order(unsigned order) { order_of_launch = order; }

void run(dim3 grid, dim3 block, size_t shared, void (*body)(const void*), const void* context) {
  std::lock_guard lock(one_launch);
  uint64_t in_block = uint64_t(block.x) * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || !in_block ||
      in_block > 1024 || block.z > 64 || shared > 232448)
    misuse(fmt::format("CUDA refuses to launch grid ({},{},{}), block ({},{},{}), {} bytes of shared memory", grid.x,
                       grid.y, grid.z, block.x, block.y, block.z, shared));
  Order order = chosen_order();
  gridDim = grid, blockDim = block, thread_body = body, body_context = context;
  prepare_threads(block);
  std::unique_ptr<void, void (*)(void*)> memory(nullptr, std::free);
  void* p = nullptr;
  if (shared && posix_memalign(&p, 128, shared)) fail("no memory for the shared memory of an emulated CUDA block");
  memory.reset(p), shared_memory = p;
  try {
    uint64_t number = 0;
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = {x, y, z};
          if (shared) std::memset(shared_memory, 0xff, shared);
          run_block(number++, order);
        }
  } catch (...) {
    for (unsigned t = 0; t < count; ++t) threads[t].fiber->restart();
    throw;
  }
}

void* dynamic_shared() {
  // Without dynamic shared memory the array may be declared, but not accessed.
  static void* inaccessible = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return shared_memory ? shared_memory : inaccessible;
}

int barrier(bool predicate, Site site, int* arrived) {
  Barrier& b = block_barrier;
  if (b.waiting) {
    const Site& other = threads[b.last].site;
    if (!same_place(other, site)) report_divergence("", b.last, site);
  }
  b.true_predicates += predicate;
  b.last = now;
  if (++b.waiting == live)
    release_barrier();
  else
    wait(State::at_barrier, site);
  if (arrived) *arrived = b.threads;
  return b.result;
}

uint64_t warp(WarpOp op, unsigned mask, uint64_t value, unsigned source, Site site) {
  unsigned self = now, first = self / 32 * 32;
  Warp& w = warps[self / 32];
  Thread& t = threads[self];
  if (!(mask >> lane() & 1) || mask & ~w.live) report_mask(mask, w.live, site);
  t.op = op, t.mask = mask, t.value = value, t.source = source, t.site = site;
  w.waiting |= 1u << lane();
  bool all = (w.waiting & mask) == mask;
  for (unsigned rest = mask; all && rest; rest &= rest - 1)
    all = threads[first + unsigned(__builtin_ctz(rest))].mask == mask;
  if (all) {
    complete(first, mask);
    w.waiting &= ~mask;
  } else {
    wait(State::in_warp, site);
  }
  return t.result;
}

void together(const void* mine, void (*work)(const void* const* given), Site site) {
  threads[now].given = mine, threads[now].work = work;
  warp(WarpOp::together, ~0u, 0, 0, site);
}

static thread_local uint64_t waits_counted = 0;
void count_wait() { ++waits_counted; }
uint64_t waits() { return waits_counted; }

unsigned lane() { return now % 32; }
unsigned live_lanes() { return warps[now / 32].live; }

void require_aligned(const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes)
    misuse(fmt::format("{} accesses {} bytes at an address that is not a multiple of {}", name_of(now), bytes, bytes));
}

}  // namespace crest::cuda::emulator
