#include "run/ranks.h"

#include <exception>
#include <thread>
#include <vector>

namespace crest {

void run_on_ranks(int ranks, const std::function<void(int)>& work) {
  if (ranks == 1) return work(0);
  std::vector<std::exception_ptr> errors(size_t(ranks), nullptr);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (...) {
        errors[size_t(r)] = std::current_exception();
      }
    });
  for (auto& t : threads) t.join();
  for (auto& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace crest
