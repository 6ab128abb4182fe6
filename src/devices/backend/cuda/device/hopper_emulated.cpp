#include "backend/cuda/device/hopper_emulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/cuda/device/emulator_fiber.h"
#include "core/error.h"

namespace crest::cuda::hopper {

namespace emulated {

using emulator::Fiber;

namespace {

// Addresses of shared memory begin here, so no multiple of 1024 is given by chance.
constexpr uint32_t first_address = 1024 + 128;

struct Barrier {
  uint32_t count = 0, pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
};
struct Named {
  int arrived = 0, expected = 0;
  uint64_t phase = 0;
};
struct Block;
// A pending copy.
struct Copy {
  std::function<void()> read, write;  // from, to shared memory; or all of it in `write`
  int delay = 0;                      // passes of the scheduler
  bool has_read = false;
};
struct Group {  // of stores of a thread
  std::vector<std::shared_ptr<Copy>> copies;
};
struct Thread {
  Fiber* fiber = nullptr;
  Block* block = nullptr;
  unsigned index = 0;
  bool returned = false;
  std::vector<std::shared_ptr<Copy>> open;  // uncommitted stores
  std::vector<Group> groups;
  std::vector<Product> open_products;
  std::vector<std::vector<Product>> products;  // pending groups
  uint32_t exchanged[2] = {};                  // in warp operations of even and odd number
  // What it waits for, so the scheduler can ask without resuming it; null: nothing.
  bool (*done)(const void* condition) = nullptr;
  const void* condition = nullptr;
};
struct Warp {
  int waiting = 0;
  uint64_t phase = 0;
  int frozen = 0;  // passes without it
};
struct Block {
  unsigned index = 0;
  std::vector<unsigned char> memory;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::map<uint32_t, Barrier> barriers;
  Named named[16];
  int waiting = 0;
  uint64_t phase = 0;
};

Timing timing = Timing::late;
std::mt19937_64 random_bits;
std::vector<std::unique_ptr<Block>> blocks;
std::vector<std::shared_ptr<Copy>> copies;  // in flight
Thread* now = nullptr;
const std::function<void()>* thread_body = nullptr;
std::exception_ptr error;
std::vector<std::unique_ptr<Fiber>> fibers;  // of all launches
uint64_t events = 0;                         // changes anything
bool abandoned = false;

struct Abandoned {};

[[noreturn]] void misuse(const std::string& what) {
  size_t block = 0;
  while (block < blocks.size() && now && blocks[block].get() != now->block) ++block;
  fail_internal(fmt::format("emulated kernel, thread {} of block {}: {}", now ? now->index : 0, block, what));
}

void fiber_main() {
  for (;;) {
    try {
      (*thread_body)();
      if (!now->open_products.empty() || !now->open.empty()) misuse("returned with what it has not committed");
    } catch (Abandoned) {
    } catch (...) {
      error = std::current_exception();
    }
    now->returned = true;
    ++events;
    Fiber::suspend();
  }
}

template <class Done>
void wait_until(Done done) {
  if (done()) return;
  now->condition = &done;
  now->done = [](const void* condition) { return (*static_cast<const Done*>(condition))(); };
  yield();
  now->done = nullptr;
}

unsigned char* at(Block& b, uint32_t address, size_t bytes) {
  if (address < first_address || address - first_address + bytes > b.memory.size())
    misuse(fmt::format("{} bytes at address {:#x} of shared memory", bytes, address));
  return b.memory.data() + (address - first_address);
}
Barrier& barrier_at(Block& b, uint32_t address) {
  auto found = b.barriers.find(address);
  if (found == b.barriers.end()) misuse("a barrier that was not initialized");
  return found->second;
}
void step(Barrier& b) {
  ++events;
  if (b.pending == 0 && b.bytes == 0) ++b.phase, b.pending = b.count;
}

// One pass: copies due now.
void advance_copies() {
  for (size_t i = 0; i < copies.size();) {
    Copy& c = *copies[i];
    if (c.delay > 0) {
      --c.delay, ++i;
      continue;
    }
    ++events;
    if (!c.has_read) {
      if (c.read) c.read();
      c.has_read = true;
      if (c.read && timing == Timing::late) {
        c.delay = int(random_bits() % 40);
        ++i;
        continue;
      }
    }
    c.write();
    c.write = nullptr;
    copies[i] = copies.back();
    copies.pop_back();
  }
}
void add_copy(const std::shared_ptr<Copy>& c) {
  if (timing == Timing::early) {
    if (c->read) c->read();
    c->has_read = true;
    c->write();
    c->write = nullptr;
    ++events;
    return;
  }
  c->delay = int(random_bits() % 40);
  copies.push_back(c);
}

// Element (row, column) of an operand of 16-bit floats: the dimension not summed over, and the
// other.
uint16_t element(Block& b, uint64_t operand, bool rows_summed, int other, int summed) {
  uint32_t start = uint32_t(operand & 0x3fff) << 4, across = uint32_t(operand >> 16 & 0x3fff) << 4;
  uint32_t rows8 = uint32_t(operand >> 32 & 0x3fff) << 4;
  uint32_t linear;
  if (rows_summed) {  // columns are `other`, 64 in a row of 128 bytes
    linear = start + uint32_t(other / 64) * across + uint32_t(summed / 8) * rows8 + uint32_t(summed % 8 * 128) +
             uint32_t(other % 64 * 2);
  } else {
    linear = start + uint32_t(other / 8) * rows8 + uint32_t(other % 8 * 128) + uint32_t(summed * 2);
  }
  uint32_t address = linear ^ (linear >> 3 & 0x70);  // the swizzle is of addresses
  uint16_t x;
  std::memcpy(&x, at(b, address, 2), 2);
  return x;
}

// The part of the calling thread's warp in a wgmma: 16 rows.
void perform(size_t group, size_t number) {
  Block& b = *now->block;
  Thread* lanes = b.threads.data() + now->index / 32 * 32;
  auto of = [&](int lane) -> Product& { return lanes[lane].products[group][number]; };
  const Product& p = of(0);
  for (int lane = 1; lane < 32; ++lane)
    if (const Product& q = of(lane); q.n != p.n || q.a != p.a || q.b != p.b || q.accumulate != p.accumulate)
      misuse("a product whose operands differ between the lanes of a warp");
  float x[16][16], y[16][256], sum[256];
  int warp = int(now->index / 32 % 4);
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < 16; ++k)  // or of the lane of the same row with column k
      x[r][k] = p.widen(p.a_shared ? element(b, p.a, p.a_rows_summed, 16 * warp + r, k)
                                   : uint16_t(of(r % 8 * 4 + k % 8 / 2).registers[k / 8 * 2 + r / 8] >> (k % 2 * 16)));
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < p.n; ++n) y[k][n] = p.widen(element(b, p.b, p.b_rows_summed, n, k));
  for (int r = 0; r < 16; ++r) {
    std::fill(sum, sum + p.n, 0.f);
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < p.n; ++n) sum[n] += x[r][k] * y[k][n];
    for (int n = 0; n < p.n; ++n) {
      float& d = of(r % 8 * 4 + n % 8 / 2).d[n / 8 * 4 + r / 8 * 2 + n % 2];
      d = p.accumulate ? d + sum[n] : sum[n];
    }
  }
}

void perform_groups(size_t keep) {
  sync_warp();
  Thread& t = *now;
  size_t count = t.products.size() > keep ? t.products.size() - keep : 0;
  if (t.index % 32 == 0)
    for (size_t group = 0; group < count; ++group)
      for (size_t i = 0; i < t.products[group].size(); ++i) perform(group, i);
  sync_warp();  // lane 0 reads and writes this thread's registers
  t.products.erase(t.products.begin(), t.products.begin() + long(count));
}

}  // namespace

void set_timing(Timing t, uint64_t seed) {
  timing = t;
  random_bits.seed(seed);
}

void yield() {
  Fiber::suspend();
  if (abandoned) throw Abandoned();
}

void run(unsigned block_count, unsigned threads, size_t shared, const std::function<void()>& body) {
  std::lock_guard lock(emulator::one_launch);
  thread_body = &body;
  blocks.clear(), copies.clear();
  abandoned = false, error = nullptr;
  for (size_t i = 0; i < fibers.size(); ++i) fibers[i]->restart();
  while (fibers.size() < size_t(block_count) * threads)
    fibers.push_back(std::make_unique<Fiber>(fiber_main, fibers.size()));
  std::vector<Thread*> all;
  for (unsigned i = 0; i < block_count; ++i) {
    auto b = std::make_unique<Block>();
    b->index = i, b->memory.assign(shared, 0xff);
    b->threads.resize(threads), b->warps.resize(threads / 32);
    for (unsigned t = 0; t < threads; ++t) {
      b->threads[t].block = b.get(), b->threads[t].index = t;
      b->threads[t].fiber = fibers[size_t(i) * threads + t].get();
      all.push_back(&b->threads[t]);
    }
    blocks.push_back(std::move(b));
  }
  uint64_t seen = 0, quiet = 0;
  for (;;) {
    if (timing == Timing::late && random_bits() % 8 == 0) std::shuffle(all.begin(), all.end(), random_bits);
    advance_copies();
    if (timing == Timing::late) {  // now and then a warp falls behind by a step or more
      for (auto& b : blocks)
        for (Warp& w : b->warps)
          if (w.frozen > 0)
            --w.frozen, ++events;
          else if (random_bits() % 500 == 0)
            w.frozen = int(random_bits() % 600);
    }
    bool live = false;
    for (Thread* t : all) {
      if (t->returned) continue;
      live = true, now = t;
      if (t->block->warps[t->index / 32].frozen > 0) continue;
      if (t->done && !t->done(t->condition)) continue;
      t->fiber->resume();
      if (error) break;
    }
    if (error || !live) break;
    quiet = events == seen ? quiet + 1 : 0, seen = events;
    if (quiet > 3000) {
      now = nullptr;
      error = std::make_exception_ptr(Error(Exit::failed, "emulated kernel: deadlock"));
      break;
    }
  }
  while (!copies.empty() && !error) advance_copies();
  if (error) {
    abandoned = true;  // the other threads leave
    for (Thread* t : all)
      if (!t->returned) now = t, t->fiber->resume();
  }
  blocks.clear();
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

unsigned char* shared_memory() { return now->block->memory.data(); }
unsigned char* shared_at(uint32_t address) { return at(*now->block, address, 1); }
unsigned thread() { return now->index; }
unsigned block() { return now->block->index; }
unsigned block_count() { return unsigned(blocks.size()); }

void sync_block() {
  Block& b = *now->block;
  uint64_t phase = b.phase;
  ++events;
  if (++b.waiting == int(b.threads.size()))
    b.waiting = 0, ++b.phase;
  else
    wait_until([&] { return b.phase != phase; });
}
void sync_warp() {
  Warp& w = now->block->warps[now->index / 32];
  uint64_t phase = w.phase;
  ++events;
  if (++w.waiting == 32)
    w.waiting = 0, ++w.phase;
  else
    wait_until([&] { return w.phase != phase; });
}
uint32_t exchange(uint32_t x, unsigned lane) {
  Thread& t = *now;
  // Nobody is two operations ahead: the other number of each lane stays until all have read it.
  uint64_t turn = t.block->warps[t.index / 32].phase % 2;
  t.exchanged[turn] = x;
  sync_warp();
  return t.block->threads[t.index / 32 * 32 + lane].exchanged[turn];
}

void issue(const Product& p) {
  now->open_products.push_back(p);
  ++events;
}

}  // namespace emulated

using namespace emulated;

uint32_t shared_address(const void* p) {
  auto* from = static_cast<const unsigned char*>(p);
  return first_address + uint32_t(from - now->block->memory.data());
}
void barrier_init(uint32_t barrier, uint32_t arrivals) {
  at(*now->block, barrier, 8);
  now->block->barriers[barrier] = {arrivals, arrivals, 0, 0};
  ++events;
}
void barrier_arrive(uint32_t barrier) {
  Barrier& b = barrier_at(*now->block, barrier);
  if (b.pending == 0) misuse("too many arrivals at a barrier");
  --b.pending;
  step(b);
}
void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  barrier_at(*now->block, barrier).bytes += bytes;
  barrier_arrive(barrier);
}
void barrier_wait(uint32_t barrier, uint32_t parity) {
  Barrier& b = barrier_at(*now->block, barrier);
  wait_until([&] { return b.phase % 2 != parity; });
}
void named_sync(int id, int threads) {
  Named& n = now->block->named[id];
  uint64_t phase = n.phase;
  named_arrive(id, threads);
  wait_until([&] { return n.phase != phase; });
}
void named_arrive(int id, int threads) {
  Named& n = now->block->named[id];
  if (n.arrived && n.expected != threads) misuse("a barrier with two numbers of threads");
  n.expected = threads;
  ++events;
  if (++n.arrived == threads) n.arrived = 0, ++n.phase;
}

static void deliver(Block& block, uint32_t barrier, uint32_t bytes) {
  Barrier& b = barrier_at(block, barrier);
  b.bytes -= bytes;
  step(b);
}
void tensor_load(uint32_t to, const CUtensorMap* map, int c0, int c1, int c2, uint32_t barrier) {
  if (to % 1024) misuse("a tile that is not aligned to 1024 bytes");
  auto c = std::make_shared<Copy>();
  c->write = [b = now->block, to, map, c0, c1, c2, barrier] {
    for (int r = 0; r < map->box_rows; ++r)
      for (int x = 0; x < 64; ++x) {
        uint16_t value = 0;
        if (c0 + x < map->width && c1 + r >= 0 && c1 + r < map->tokens && c2 < map->batch)
          std::memcpy(&value, map->base + 2 * ((c2 * map->tokens + c1 + r) * map->pitch + c0 + x), 2);
        std::memcpy(at(*b, to + swizzled(r, x / 8) + uint32_t(x % 8 * 2), 2), &value, 2);
      }
    deliver(*b, barrier, uint32_t(map->box_rows) * 128);
  };
  add_copy(c);
}
void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  if (to % 16 || bytes % 16 || reinterpret_cast<uintptr_t>(from) % 16) misuse("a bulk copy that is not aligned");
  auto c = std::make_shared<Copy>();
  c->write = [b = now->block, to, from, bytes, barrier] {
    std::memcpy(at(*b, to, bytes), from, bytes);
    deliver(*b, barrier, bytes);
  };
  add_copy(c);
}
static void add_store(std::shared_ptr<Copy> c, uint32_t from, uint32_t bytes,
                      std::function<void(const unsigned char*)> write) {
  auto data = std::make_shared<std::vector<unsigned char>>(bytes);
  c->read = [b = now->block, data, from, bytes] { std::memcpy(data->data(), at(*b, from, bytes), bytes); };
  c->write = [data, write] { write(data->data()); };
  now->open.push_back(c);
  add_copy(c);
}
void tensor_store(const CUtensorMap* map, int c0, int c1, int c2, uint32_t from) {
  if (from % 1024) misuse("a tile that is not aligned to 1024 bytes");
  const auto bytes = uint32_t(map->box_rows) * 128;
  add_store(std::make_shared<Copy>(), from, bytes, [map = *map, c0, c1, c2](const unsigned char* data) {
    for (int r = 0; r < map.box_rows; ++r)
      for (int x = 0; x < 64; ++x)
        if (c0 + x < map.width && c1 + r < map.tokens && c2 < map.batch)
          std::memcpy(map.base + 2 * ((c2 * map.tokens + c1 + r) * map.pitch + c0 + x),
                      data + swizzled(r, x / 8) + x % 8 * 2, 2);
  });
}
void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  add_store(std::make_shared<Copy>(), from, bytes,
            [to, bytes](const unsigned char* data) { std::memcpy(to, data, bytes); });
}
void bulk_add(float* to, uint32_t from, uint32_t bytes) {
  add_store(std::make_shared<Copy>(), from, bytes, [to, bytes](const unsigned char* data) {
    for (uint32_t i = 0; i < bytes / 4; ++i) {
      float x;
      std::memcpy(&x, data + 4 * i, 4);
      to[i] += x;
    }
  });
}
void bulk_commit() {
  now->groups.push_back({std::move(now->open)});
  now->open.clear();
}
void bulk_wait_groups(int pending, bool only_read) {
  Thread& t = *now;
  wait_until([&] {
    for (size_t i = 0; i + size_t(pending) < t.groups.size(); ++i)
      for (auto& c : t.groups[i].copies)
        if (only_read ? !c->has_read : c->write != nullptr) return false;
    return true;
  });
}

void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  Thread& t = *now;
  if (to % 16) misuse("stmatrix to an address that is not aligned");
  uint32_t mine[4] = {a, b, c, d};
  unsigned lane = t.index % 32;
  for (unsigned m = 0; m < 4; ++m)
    std::memcpy(at(*t.block, exchange(to, 8 * m + lane / 4) + lane % 4 * 4, 4), &mine[m], 4);
  emulated::sync_warp();
}

void wgmma_commit() {
  now->products.push_back(std::move(now->open_products));
  now->open_products.clear();
  if (timing == Timing::early) perform_groups(0);
}
void wgmma_wait_groups(int pending) {
  if (timing == Timing::early)
    emulated::sync_warp();
  else
    perform_groups(size_t(pending));
}

}  // namespace crest::cuda::hopper
