// Memory of the harness.
#include <algorithm>
#include <cstring>

#include "ops/harness.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace crest::test {

static constexpr size_t guard = 256;
static constexpr uint8_t guard_byte = 0xa5;

// One past the last byte of a value in its storage. Rows with a pitch are whole rows.
static size_t extent(const Value& v) {
  if (!v.contiguous() && v.pitch() > 0) return size_t(v.layout.offset) * size_of(v.dtype) + size_t(v.storage_bytes());
  int64_t last = v.layout.offset;
  for (int d = 0; d < v.shape.rank(); ++d) last += (v.shape[d] - 1) * v.layout.strides[d];
  return size_t(last + 1) * size_of(v.dtype);
}

// Calls f(k, place) for the elements of a value: logical number, place in elements from the value's
// first element.
template <class F>
static void for_each_element(const Value& v, F f) {
  int64_t n = v.numel();
  if (v.contiguous()) {
    for (int64_t k = 0; k < n; ++k) f(size_t(k), k);
    return;
  }
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k, place = 0;
    for (int d = v.shape.rank() - 1; d >= 0; --d) place += rest % v.shape[d] * v.layout.strides[d], rest /= v.shape[d];
    f(size_t(k), place);
  }
}

Memory::Memory(const Program& program) : program_(program) {
  sizes_.assign(program.values.size(), 0);
  for (const Value& v : program.values) {
    size_t& size = sizes_[size_t(v.layout.storage)];
    size = std::max(size, extent(v));
  }
  moved_.assign(sizes_.size(), nullptr);
  for (size_t size : sizes_) {
    std::vector<uint8_t> block(size ? size + 3 * guard : 0, guard_byte);
    blocks_.push_back(std::move(block));
  }
  poison();
  hide_guards(true);
}

Memory::~Memory() { hide_guards(false); }

void Memory::poison() {
  for (size_t s = 0; s < blocks_.size(); ++s)
    if (sizes_[s]) std::memset(start(ValueId(s)), 0xff, sizes_[s]);
}

void Memory::hide_guards([[maybe_unused]] bool hidden) const {
#ifdef __SANITIZE_ADDRESS__
  for (size_t s = 0; s < blocks_.size(); ++s) {
    if (!sizes_[s]) continue;
    const uint8_t *first = start(ValueId(s)), *last = first + sizes_[s], *begin = blocks_[s].data();
    if (hidden) {
      __asan_poison_memory_region(begin, size_t(first - begin));
      __asan_poison_memory_region(last, size_t(begin + blocks_[s].size() - last));
    } else {
      __asan_unpoison_memory_region(begin, blocks_[s].size());
    }
  }
#endif
}

std::vector<Memory::Block> Memory::blocks() const {
  std::vector<Block> list;
  for (size_t s = 0; s < blocks_.size(); ++s)
    if (sizes_[s]) list.push_back({start(ValueId(s)) - guard, sizes_[s] + 2 * guard});
  return list;
}

uint8_t* Memory::start(ValueId storage) const {
  auto p = reinterpret_cast<uintptr_t>(blocks_[size_t(storage)].data()) + guard;
  return reinterpret_cast<uint8_t*>((p + guard - 1) / guard * guard);
}

void* Memory::at(ValueId id) const {
  const Value& v = program_.at(id);
  if (moved_[size_t(id)]) return moved_[size_t(id)];
  return start(v.layout.storage) + size_t(v.layout.offset) * size_of(v.dtype);
}

void Memory::write(ValueId id, const std::vector<double>& values) {
  const Value& v = program_.at(id);
  void* to = at(id);
  for_each_element(v, [&](size_t k, int64_t place) { store_element(to, v.dtype, place, values[k]); });
}

std::vector<double> Memory::read(ValueId id) const {
  const Value& v = program_.at(id);
  std::vector<double> values(size_t(v.numel()));
  const void* from = at(id);
  for_each_element(v, [&](size_t k, int64_t place) { values[k] = load_element(from, v.dtype, place); });
  return values;
}

std::vector<uint8_t> Memory::bytes(ValueId id) const {
  ValueId storage = program_.at(id).layout.storage;
  const auto* p = moved_[size_t(id)] ? static_cast<uint8_t*>(moved_[size_t(id)]) : start(storage);
  return {p, p + sizes_[size_t(storage)]};
}

bool Memory::guards_intact() const {
  hide_guards(false);
  bool intact = true;
  for (size_t s = 0; s < blocks_.size(); ++s) {
    if (!sizes_[s]) continue;
    const uint8_t *first = start(ValueId(s)), *last = first + sizes_[s];
    const uint8_t *begin = blocks_[s].data(), *end = begin + blocks_[s].size();
    auto is_guard = [](uint8_t b) { return b == guard_byte; };
    intact &= std::all_of(begin, first, is_guard) && std::all_of(last, end, is_guard);
  }
  hide_guards(true);
  return intact;
}

}  // namespace crest::test
