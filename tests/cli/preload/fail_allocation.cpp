// Loaded into crest before its libraries (LD_PRELOAD): the k-th allocation of main() fails.
// tests/cli/out_of_memory.cpp
//   CREST_FAIL_ALLOCATION=K    operator new number K (from 0) throws; K+: this one and all later ones; -1: none
//   CREST_FAIL_LARGE=BYTES     count only allocations of at least this size, also by malloc and mmap
//   CREST_FAIL_COUNT=FILE      receives the number of allocations at the end of main()
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_memalign(size_t, size_t);

namespace {

std::atomic<bool> armed{false};
std::atomic<long> count{0};
long fail_at = -1, large = 0;
bool from_then_on = false;

// oneDNN crashes without memory for its
// generated code: its requests are not counted.
bool is_onednn(void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname && strstr(info.dli_fname, "libdnnl");
}

bool fails(size_t bytes, void* caller) {
  if (!armed.load(std::memory_order_relaxed) || (large && bytes < size_t(large)) || is_onednn(caller)) return false;
  long number = count++;
  return fail_at >= 0 && (from_then_on ? number >= fail_at : number == fail_at);
}

void* take(size_t bytes, size_t alignment, void* caller) {
  void* p = fails(bytes, caller) ? nullptr
            : alignment          ? __libc_memalign(alignment, bytes)
                                 : __libc_malloc(bytes ? bytes : 1);
  if (!p) {
    if (auto handler = std::get_new_handler()) handler();  // and it throws
    throw std::bad_alloc();
  }
  return p;
}

using Main = int (*)(int, char**, char**);
Main real_main;

int counted_main(int argc, char** argv, char** environment) {
  if (const char* k = getenv("CREST_FAIL_ALLOCATION")) fail_at = atol(k), from_then_on = strchr(k, '+') != nullptr;
  if (const char* bytes = getenv("CREST_FAIL_LARGE")) large = atol(bytes);
  armed = true;
  int code = real_main(argc, argv, environment);
  armed = false;
  if (const char* path = getenv("CREST_FAIL_COUNT"))
    if (FILE* file = fopen(path, "w")) fprintf(file, "%ld\n", count.load()), fclose(file);
  return code;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld)(),
                                 void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  real_main = main;
  auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, rtld, stack);
}

// Only where the size is requested: C libraries do not run out first.
extern "C" void* malloc(size_t bytes) {
  if (large && fails(bytes, __builtin_return_address(0))) return errno = ENOMEM, nullptr;
  return __libc_malloc(bytes);
}

extern "C" void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  using Map = void* (*)(void*, size_t, int, int, int, off_t);
  static auto map = reinterpret_cast<Map>(dlsym(RTLD_NEXT, "mmap"));
  if (large && (flags & MAP_ANONYMOUS) && fails(bytes, __builtin_return_address(0))) return errno = ENOMEM, MAP_FAILED;
  return map(at, bytes, protection, flags, fd, offset);
}

void* operator new(size_t bytes) { return take(bytes, 0, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return take(bytes, 0, __builtin_return_address(0)); }
void* operator new(size_t bytes, std::align_val_t a) { return take(bytes, size_t(a), __builtin_return_address(0)); }
void* operator new[](size_t bytes, std::align_val_t a) { return take(bytes, size_t(a), __builtin_return_address(0)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return fails(bytes, __builtin_return_address(0)) ? nullptr : __libc_malloc(bytes ? bytes : 1);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return fails(bytes, __builtin_return_address(0)) ? nullptr : __libc_malloc(bytes ? bytes : 1);
}
void operator delete(void* p) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }
void operator delete(void* p, std::align_val_t) noexcept { free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { free(p); }
