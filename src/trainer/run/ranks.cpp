#include "run/ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include "comm/comm.h"

namespace crest {

void run_on_ranks(int ranks, const std::function<void(int)>& work) {
  if (ranks == 1) return work(0);
  std::vector<std::exception_ptr> errors(size_t(ranks), nullptr), lost = errors;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const PeerLost&) {
        lost[size_t(r)] = std::current_exception();
      } catch (...) {
        errors[size_t(r)] = std::current_exception();
      }
    });
  for (auto& t : threads) t.join();
  for (auto* list : {&errors, &lost})
    for (auto& e : *list)
      if (e) std::rethrow_exception(e);
}

}  // namespace crest
