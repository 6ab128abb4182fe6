#include "ranks.h"

#include <thread>

namespace crest::test {

std::vector<std::string> with_ranks(int ranks, const std::function<void(Control&)>& work, double seconds) {
  Socket listener = listen_on("127.0.0.1", 0);
  RankEnvironment environment;
  environment.size = ranks, environment.port = port_of(listener);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      RankEnvironment own = environment;
      own.rank = r;
      try {
        auto control = Control::join(own, seconds, r == 0 ? std::move(listener) : Socket());
        work(*control);
      } catch (const std::exception& e) {
        errors[size_t(r)] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  return errors;
}

}  // namespace crest::test
