#include "comm/watchdog.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "comm/control.h"
#include "comm/sent_error.h"

namespace crest {

double word_interval(double limit) { return std::clamp(limit / 8, 0.05, 1.0); }

Watchdog::Watchdog(const RankEnvironment& environment, const std::string& secret, double limit, double seconds,
                   std::shared_ptr<const Activity> activity, OnLoss on_loss)
    : environment_(environment), limit_(limit), activity_(std::move(activity)), on_loss_(std::move(on_loss)) {
  join_server(environment, {environment.rank, environment.size, Introduction::watchdog, secret}, seconds, socket_,
              reader_);
  thread_ = Thread(
      [this] { run(); },
      [this](const std::exception_ptr& error) {
        // From now on nobody notices if this rank stops.
        on_loss_({environment_.rank,
                  fmt::format("the watchdog of rank {} failed: {}", environment_.rank, sent_error(error).problem),
                  activity_->look().doing},
                 false);
      });
}

void Watchdog::end(bool well) {
  ending_ = true;
  thread_.join();
  if (well && socket_.is_open()) send_all(socket_, encode({'E', "", ""}));
  socket_.close();
}

void Watchdog::word() {
  Activity::Seen seen = activity_->look();
  send_all(socket_,
           encode({'P', fmt::format("{} {}", seen.count, char(seen.state)), seen.doing + '\0' + seen.collective}));
}

void Watchdog::run() {
  constexpr int poll_ms = 50;
  auto heard = Clock::now(), next = heard, last = heard;
  std::optional<PeerLost> lost;
  bool silent = false;
  while (!ending_ && !lost) {
    pollfd p = {socket_.fd(), POLLIN, 0};
    bool open = poll(&p, 1, poll_ms) <= 0 || reader_.receive(socket_);
    auto now = Clock::now();
    if (now > last + std::chrono::seconds(1)) heard = now;  // this process was stopped, or the machine slept
    last = now;
    auto lose = [&](int rank, const std::string& what) {
      lost.emplace(lost_rank(rank, what, activity_->look().doing));
    };
    for (Frame frame; reader_.next(frame);) {
      heard = now;
      if (frame.type != 'L' || lost) continue;
      silent = !frame.value.empty();
      lose(std::atoi(frame.key.c_str()), frame.value);
    }
    if (!lost && !open) lose(0, "");
    if (!lost && now > heard + std::chrono::duration<double>(limit_)) {
      silent = true;
      lose(0, fmt::format("rank 0 has not answered for {:g} s", limit_));
    }
    if (!lost && now > next) {
      next = after(word_interval(limit_));
      word();
    }
  }
  if (lost && !ending_) on_loss_(*lost, silent);
}

}  // namespace crest
