#include "comm/watchdog.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "comm/control.h"

namespace crest {

static constexpr double connect_seconds = 10;

double word_interval(double limit) { return std::clamp(limit / 8, 0.05, 1.0); }

Watchdog::Watchdog(const RankEnvironment& environment, const std::string& secret, double limit, OnLoss on_loss)
    : limit_(limit), on_loss_(std::move(on_loss)) {
  auto deadline = after(std::max(connect_seconds, limit));
  Frame refusal;
  Introduction own = {environment.rank, environment.size, Introduction::watchdog, secret};
  if (connect_and_introduce(environment, own, deadline, socket_, reader_, refusal) != Greeting::done)
    throw lost_rank(0, "", "start");
  thread_ = std::thread([this] { run(); });
}

void Watchdog::end(bool well) {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  if (well && socket_.is_open()) send_all(socket_, encode({'E', "", ""}));
  socket_.close();
}

void Watchdog::doing(std::string what) {
  std::lock_guard lock(mutex_);
  doing_ = std::move(what);
}

bool Watchdog::word() {
  std::lock_guard lock(mutex_);
  return send_all(socket_, encode({'P', "", doing_}));
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
      std::lock_guard lock(mutex_);
      lost.emplace(lost_rank(rank, what, doing_));
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
