#include "backend/cpu/stream_threads.h"

#include <algorithm>

#include "core/timer.h"

namespace crest::cpu {

StreamThreads::~StreamThreads() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (auto& t : threads_) t.join();
}

// A stream without a thread, or with an ended one, does no more work.
void StreamThreads::fail(Stream stream, const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  wanted_[size_t(stream)] = false;
  if (!job_.error) job_.error = error;
  --job_.working;
  changed_.notify_all();
}

double StreamThreads::run(const Program& program, const Waits& waits, const std::function<void(size_t)>& work) {
  std::array<bool, stream_count> used = {};
  for (auto& instr : program.code) used[size_t(instr.stream)] = true;
  used[size_t(Stream::compute)] = true;
  std::vector<bool> awaited(program.code.size());
  for (auto& list : waits)
    for (int j : list) awaited[size_t(j)] = true;
  {
    std::lock_guard lock(mutex_);
    job_ = {&program, &waits, &work, std::move(awaited), {}, int(std::count(used.begin(), used.end(), true)), nullptr};
    job_.ended.fill(-1);
    wanted_ = used;
  }
  for (size_t s = 0; s < threads_.size(); ++s)
    if (used[s] && Stream(s) != Stream::compute && !threads_[s].joinable()) try {
        threads_[s] = Thread([this, s] { serve(Stream(s)); }, [this, s](auto& error) { fail(Stream(s), error); });
      } catch (...) {
        fail(Stream(s), std::current_exception());
      }
  changed_.notify_all();
  double waited = work_on(Stream::compute);
  Timer end;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return job_.working == 0; });
  if (job_.error) std::rethrow_exception(job_.error);
  return waited + end.seconds();
}

void StreamThreads::serve(Stream stream) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return over_ || wanted_[size_t(stream)]; });
      if (over_) return;
      wanted_[size_t(stream)] = false;
    }
    work_on(stream);
  }
}

// The lock orders one stream's writes before another's reads.
double StreamThreads::work_on(Stream stream) {
  const Program& p = *job_.program;
  double waited = 0;
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i].stream != stream) continue;
    auto ready = [&] {
      auto& waits = (*job_.waits)[i];
      return std::all_of(waits.begin(), waits.end(),
                         [&](int j) { return job_.ended[size_t(p.code[size_t(j)].stream)] >= j; });
    };
    if (!job_.error && !ready()) {
      Timer wait;
      changed_.wait(lock, [&] { return job_.error || ready(); });
      waited += wait.seconds();
    }
    if (job_.error) break;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*job_.work)(i);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job_.error) job_.error = error;
    job_.ended[size_t(stream)] = int(i);
    if (error || job_.awaited[i]) changed_.notify_all();
  }
  --job_.working;
  changed_.notify_all();
  return waited;
}

}  // namespace crest::cpu
