#include "ranks.h"

#include <thread>

#include "comm/watchdog.h"

namespace crest::test {

namespace {

std::vector<std::string> run_ranks(int ranks, double seconds, const std::function<void(Control&)>& work,
                                   const std::function<ControlOptions(int rank)>& options) {
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
        auto control = Control::join(own, seconds, r == 0 ? std::move(listener) : Socket(), options(r));
        work(*control);
      } catch (const std::exception& e) {
        errors[size_t(r)] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  return errors;
}

}  // namespace

std::vector<std::string> with_ranks(int ranks, const std::function<void(Control&)>& work, double seconds) {
  return run_ranks(ranks, seconds, work, [](int) { return ControlOptions(); });
}

std::vector<std::string> with_watched_ranks(int ranks, double hang, double hang_at_work,
                                            const std::function<void(Control&)>& work, const OnLostRank& lost) {
  static constexpr double watchdog = 1;
  std::vector<std::unique_ptr<Watchdog>> dogs(static_cast<size_t>(ranks));
  auto work_and_leave = [&](Control& control) {
    work(control);
    dogs[size_t(control.rank())]->end(true);
  };
  return run_ranks(ranks, longest_wait, work_and_leave, [&](int) {
    ControlOptions options = {"", watchdog, hang, hang_at_work, {}};
    options.guard = [&dogs, lost, activity = options.activity](const RankEnvironment& own) {
      dogs[size_t(own.rank)] = std::make_unique<Watchdog>(own, "", watchdog, longest_wait, activity,
                                                          [lost, own](auto& why, bool) { lost(own.rank, why); });
    };
    return options;
  });
}

}  // namespace crest::test
