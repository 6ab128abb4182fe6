#include "malformed/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> live{0}, peak{0}, largest{0};

[[maybe_unused]] void raise_to(std::atomic<int64_t>& most, int64_t value) {
  for (int64_t was = most; was < value && !most.compare_exchange_weak(was, value);) {
  }
}

}  // namespace

namespace crest::test {

void begin_counting() { live = peak = largest = 0; }
Allocations counted() { return {size_t(peak.load()), size_t(largest.load())}; }

}  // namespace crest::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static void* take(size_t bytes, size_t alignment) {
  void* p = alignment ? aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment) : malloc(bytes);
  if (!p) throw std::bad_alloc();
  auto size = int64_t(malloc_usable_size(p));
  raise_to(peak, live += size);
  raise_to(largest, size);
  return p;
}

static void give(void* p) {
  if (p) live -= int64_t(malloc_usable_size(p));
  free(p);
}

void* operator new(size_t bytes) { return take(bytes, 0); }
void* operator new[](size_t bytes) { return take(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t a) { return take(bytes, size_t(a)); }
void* operator new[](size_t bytes, std::align_val_t a) { return take(bytes, size_t(a)); }
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, size_t) noexcept { give(p); }
void operator delete[](void* p, size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { give(p); }

#endif
