#include "train/restarts.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/timer.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "train/run_files.h"

namespace crest {

namespace {

constexpr const char* restart_variable = "CREST_RANK_RESTART";  // first step and seconds

// The run's state when a rank was lost.
struct Reached {
  int64_t checkpoint = -1, step = 0;  // -1: none

  bool operator==(const Reached&) const = default;
};

Reached reached_in(const std::string& folder) {
  Reached p;
  if (folder.empty()) return p;
  if (auto saved = list_checkpoints(folder + "/checkpoints"); !saved.empty()) p.checkpoint = saved[0].step;
  p.step = last_logged_step(folder);
  return p;
}

class Restarts {
 public:
  Restarts(LaunchOptions launch, const RestartOptions& o) : launch_(std::move(launch)), o_(o) {
    if (launch_.arguments.empty()) launch_.arguments = own_arguments();
    first_arguments_ = launch_.arguments;
    launch_.told = [this](const std::string& text) { heard(text); };
  }

  int run() {
    for (int restart = 0;; ++restart) try {
        return launch_ranks(launch_);
      } catch (const PeerLost& lost) {
        if (o_.restarts == 0 || lost.rank() < 0 || StopSignal::requested()) throw;
        prepare(lost, restart);
      }
  }

 private:
  void heard(const std::string& text) {
    size_t blank = text.find(' ');
    if (blank == std::string::npos) return;
    if (folder_.empty()) first_step_ = std::atoll(text.c_str());
    folder_ = text.substr(blank + 1);
  }

  void prepare(const PeerLost& lost, int restart) {
    Reached now = reached_in(folder_);
    std::string resume =
        now.checkpoint < 0 ? "" : fmt::format(" Continue: crest train --resume {}", shell_path(folder_));
    auto give_up = [&](const std::string& why) {
      throw PeerLost(lost.rank(), lost.problem(), lost.where(),
                     lost.advice() + (lost.advice().empty() ? "" : " ") + why + resume);
    };
    if (restart > 0 && now == last_)
      give_up(
          fmt::format("It is not started again: it failed in step {} twice without a new checkpoint.", now.step + 1));
    if (restart == o_.restarts) give_up(fmt::format("It was started again {} times (--restarts).", o_.restarts));
    last_ = now;
    std::string why = lost.where().empty() ? lost.problem() : fmt::format("{} ({})", lost.problem(), lost.where());
    std::string from =
        now.checkpoint < 0 ? "from the beginning (no checkpoint)" : fmt::format("from step {}", now.checkpoint);
    to_stderr("crest: restart {} of {} {}: {}\n", restart + 1, o_.restarts, from, printable(why, 1000));
    launch_.arguments = now.checkpoint < 0 ? first_arguments_ : o_.continued(folder_);
    std::error_code unknown;  // --overwrite removes nothing through a link
    if (now.checkpoint < 0 && !folder_.empty())
      for (auto& argument : {std::string("--out"), std::filesystem::weakly_canonical(folder_, unknown).string(),
                             std::string("--overwrite")})
        launch_.arguments.push_back(argument);
    launch_.variables = {{restart_variable, fmt::format("{} {}", first_step_, timer_.seconds())}};
  }

  LaunchOptions launch_;
  const RestartOptions& o_;
  std::vector<std::string> first_arguments_;
  std::string folder_;
  int64_t first_step_ = 0;
  Reached last_;
  Timer timer_;
};

}  // namespace

std::optional<Restarted> restarted() {
  const char* text = std::getenv(restart_variable);
  long long step = 0;
  double seconds = 0;
  if (!text || !is_launched() || std::sscanf(text, "%lld %lf", &step, &seconds) != 2) return std::nullopt;
  return Restarted{step, seconds};
}

void tell_run_folder(const std::string& folder, int64_t first_step) {
  tell_launcher(fmt::format("{} {}", first_step, std::filesystem::absolute(folder).string()));
}

int launch_training(LaunchOptions launch, const RestartOptions& restart) {
  return Restarts(std::move(launch), restart).run();
}

}  // namespace crest
