#include "backend/cuda/device/emulator_fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "core/error.h"
#ifndef __x86_64__
#define CREST_UCONTEXT
#endif
#ifdef CREST_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef CREST_UCONTEXT
// Saves the registers preserved by a call (System V x86-64 ABI) on the stack and continues on
// another one; swapcontext does the same with a system call for the signal mask.
extern "C" void crest_switch_stack(void** save, void* load);
asm(R"(
.text
.globl crest_switch_stack
.hidden crest_switch_stack
.type crest_switch_stack, @function
crest_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size crest_switch_stack, .-crest_switch_stack
)");
#endif

namespace crest::cuda::emulator {

static constexpr size_t stack_size = 256 * 1024;

static Fiber* running = nullptr;
static void* scheduler_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
static const void* scheduler_bottom = nullptr;
static size_t scheduler_size = 0;
#endif

static void switch_stack(void** save, void* load) {
#ifdef CREST_UCONTEXT
  auto context = [](void** p) {
    if (!*p) *p = new ucontext_t();
    return static_cast<ucontext_t*>(*p);
  };
  swapcontext(context(save), context(&load));
#else
  crest_switch_stack(save, load);
#endif
}

Fiber::Fiber(void (*main)(), size_t number) : main_(main), number_(number) {
  size_t guard = size_t(sysconf(_SC_PAGESIZE));
  void* p =
      mmap(nullptr, stack_size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, guard, PROT_NONE)) fail("no memory for the stack of an emulated CUDA thread");
  memory_ = static_cast<char*>(p) + guard;
  restart();
}

Fiber::~Fiber() {
  size_t guard = size_t(sysconf(_SC_PAGESIZE));
  munmap(memory_ - guard, stack_size + guard);
#ifdef CREST_UCONTEXT
  delete static_cast<ucontext_t*>(stack_pointer_);
#endif
}

void Fiber::restart() {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(memory_, stack_size);
  fake_stack_ = nullptr;
#endif
  // Stacks start at different cache sets, else the tops of all of them would evict each other.
  size_t size = stack_size - number_ % 64 * 192;
#ifdef CREST_UCONTEXT
  auto* context = static_cast<ucontext_t*>(stack_pointer_ ? stack_pointer_ : new ucontext_t());
  getcontext(context);
  context->uc_stack.ss_sp = memory_, context->uc_stack.ss_size = size, context->uc_link = nullptr;
  makecontext(context, &Fiber::enter, 0);
  stack_pointer_ = context;
#else
  // As if enter() had been called from address 0: six saved registers, the address to return to,
  // the caller's.
  auto* top = reinterpret_cast<void**>(memory_ + size) - 8;
  std::memset(top, 0, 8 * sizeof(void*));
  top[6] = reinterpret_cast<void*>(&Fiber::enter);
  stack_pointer_ = top;
#endif
}

void Fiber::enter() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  running->main_();
}

void Fiber::resume() {
  running = this;
#ifdef __SANITIZE_ADDRESS__
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, memory_, stack_size);
#endif
  switch_stack(&scheduler_stack, stack_pointer_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&running->fake_stack_, scheduler_bottom, scheduler_size);
#endif
  switch_stack(&running->stack_pointer_, scheduler_stack);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(running->fake_stack_, &scheduler_bottom, &scheduler_size);
#endif
}

}  // namespace crest::cuda::emulator
