#include "run/ranks.h"

#include <exception>
#include <future>
#include <vector>

#include "comm/comm.h"
#include "core/thread.h"

namespace crest {

void run_on_ranks(int ranks, const std::function<void(int)>& work) {
  if (ranks == 1) return work(0);
  std::vector<std::exception_ptr> errors(size_t(ranks), nullptr), lost = errors;
  std::promise<void> all;  // start together: no rank may wait for one unable to start
  std::shared_future<void> begun = all.get_future().share();
  std::vector<Thread> threads;
  for (int r = 0; r < ranks; ++r) try {
      auto failed = [&error = errors[size_t(r)], &lost_error = lost[size_t(r)]](const std::exception_ptr& e) {
        try {
          std::rethrow_exception(e);
        } catch (const PeerLost&) {
          lost_error = e;
        } catch (...) {
          error = e;
        }
      };
      threads.emplace_back([&work, begun, r] { return begun.get(), work(r); }, failed);
    } catch (...) {
      all.set_exception(std::current_exception());
      threads.clear();
      throw;
    }
  all.set_value();
  threads.clear();
  for (auto* list : {&errors, &lost})
    for (auto& e : *list)
      if (e) std::rethrow_exception(e);
}

}  // namespace crest
