#include "comm/rank_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "comm/control_communicator.h"
#include "comm/exchange.h"
#include "comm/gloo.h"
#include "comm/launch.h"
#include "comm/secret.h"

namespace crest {

namespace {

constexpr double start_seconds = 60;  // for all processes to start
constexpr double notice_seconds = 3;  // for the main thread to notice that a rank is lost
// Of a collective: a rank may wait for another that saves a checkpoint. Lost ranks are found by the
// control channel.
constexpr double collective_seconds = 1e6;

}  // namespace

std::unique_ptr<RankGroup> RankGroup::join(const RankEnvironment& environment, const RankOptions& options) {
  return std::unique_ptr<RankGroup>(new RankGroup(environment, options));
}

RankGroup::RankGroup(const RankEnvironment& environment, const RankOptions& options)
    : environment_(environment), secret_(environment, after(start_seconds)) {
  control_ = join_ranks(environment, std::max(start_seconds, options.watchdog), secret_, options.watchdog);
  environment_.port = control_->port();
  watchdog_ = std::make_unique<Watchdog>(environment_, secret_.text(), options.watchdog,
                                         [this](const PeerLost& lost, bool silent) { on_loss(lost, silent); });
}

RankGroup::~RankGroup() {
  set_over();
  watchdog_.reset();
}

void RankGroup::set_over() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
}

PeerLost RankGroup::noticed(const PeerLost& lost) {
  set_over();
  std::lock_guard lock(mutex_);
  if (!silent_ || silent_->rank() != lost.rank()) return lost;
  return {lost.rank(), silent_->problem(), lost.where(), silent_->advice()};
}

void RankGroup::done() {
  set_over();
  watchdog_->end(true);
}

// The launcher ends a rank that is silent, so that its connections break and the collectives of the
// others fail. A main thread that does not notice in time, because it computes or because nobody
// could end that rank, is ended here.
void RankGroup::on_loss(const PeerLost& lost, bool silent) {
  std::unique_lock lock(mutex_);
  if (silent) {
    silent_.emplace(lost);
    report_silent_rank(lost.rank());
  }
  if (wake_.wait_for(lock, std::chrono::duration<double>(notice_seconds), [&] { return over_; })) return;
  secret_.remove_file();
  if (!report_to_launcher(std::make_exception_ptr(lost)))
    std::fputs(fmt::format("crest: error: {}\n", lost.what()).c_str(), stderr);
  _exit(int(Exit::failed));
}

void RankGroup::start_after_first() {
  if (leads())
    control_->set("started", "");
  else
    control_->get("started", collective_seconds);
}

Communicator& RankGroup::communicator() {
  if (communicator_) return *communicator_;
  communicator_ =
      connect_ ? connect_(*control_, host()) : make_gloo_communicator(*control_, size(), "run", collective_seconds);
  return *communicator_;
}

Communicator& RankGroup::host() {
  if (!connect_) return communicator();
  if (!host_) host_ = make_control_communicator(*control_);
  return *host_;
}

bool RankGroup::any(bool own) {
  auto all = gather(host(), {own ? 1.0 : 0.0});
  return std::any_of(all.begin(), all.end(), [](auto& of_rank) { return of_rank[0] != 0; });
}

double RankGroup::from_first(double own) {
  host().broadcast(&own, DType::f64, 1, 0);
  return own;
}

std::string RankGroup::from_first(const std::string& own) { return broadcast_text(host(), own, 0); }

}  // namespace crest
