// Stackful fibers of one OS thread, for the emulator: a scheduler resumes one, and it runs until it
// suspends itself.
#pragma once
#include <cstddef>
#include <mutex>

namespace crest::cuda::emulator {

// Held by a launch: fibers run on one OS thread at a time, and __shared__ arrays are static.
inline std::mutex one_launch;

class Fiber {
 public:
  // main never returns. The stack is mapped once and touched where it is used; a guard page lies
  // below it.
  Fiber(void (*main)(), size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // From the scheduler: runs until the fiber calls suspend().
  void resume();
  // From within the running fiber: back to the scheduler.
  static void suspend();
  // Forgets the fiber's work; the next resume() enters main. Objects on its stack are not
  // destroyed.
  void restart();

 private:
  static void enter();
  void (*main_)();
  size_t number_;
  char* memory_;
  void* stack_pointer_ = nullptr;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace crest::cuda::emulator
