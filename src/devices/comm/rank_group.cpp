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

// Seconds for the main thread to notice a lost rank. Before it is connected, it has nothing to
// record.
constexpr double notice_seconds = 3, start_notice_seconds = 0.5;
// Time limit of a collective. It is long, since another rank may be saving a checkpoint. The
// control channel finds lost or hanging ranks.
constexpr double collective_seconds = 1e6;

}  // namespace

std::unique_ptr<RankGroup> RankGroup::join(const RankEnvironment& environment, const RankOptions& options) {
  return std::unique_ptr<RankGroup>(new RankGroup(environment, options));
}

RankGroup::RankGroup(const RankEnvironment& environment, const RankOptions& options)
    : environment_(environment), options_(options), secret_(environment, after(options.longest_wait())) {
  try {
    control_ = join_all();
  } catch (const PeerLost& lost) {
    throw noticed(lost);
  } catch (...) {
    set_over();
    throw;
  }
  environment_.port = control_->port();
}

// With another secret, rank 0 refuses the watchdog first.
std::unique_ptr<Control> RankGroup::join_all() {
  const double seconds = options_.longest_wait();
  ControlOptions options = {"", options_.watchdog, seconds, 10 * seconds, {}, activity_};
  options.guard = [&](const RankEnvironment& environment) {
    watchdog_ = std::make_unique<Watchdog>(environment, secret_.text(), options_.watchdog, seconds, activity_,
                                           [this](const PeerLost& lost, bool silent) { on_loss(lost, silent); });
  };
  return join_ranks(environment_, seconds, secret_, options);
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

// The launcher ends a silent rank. The main thread notices in a collective or at its next
// instruction. During start or saving it may not notice in time, and is ended here.
void RankGroup::on_loss(const PeerLost& lost, bool silent) {
  std::unique_lock lock(mutex_);
  lost_.emplace(lost);
  if (silent) {
    silent_.emplace(lost);
    report_silent_rank(lost.rank());
  }
  if (communicator_) communicator_->interrupt(lost);
  const double seconds = communicator_ ? notice_seconds : start_notice_seconds;
  if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; })) return;
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
  auto connected = connect_all();
  std::lock_guard lock(mutex_);
  communicator_ = std::move(connected);
  if (lost_) communicator_->interrupt(*lost_);
  return *communicator_;
}

std::unique_ptr<Communicator> RankGroup::connect_all() {
  if (connect_) return connect_(*control_, host());
  return make_gloo_communicator(*control_, size(), "run", collective_seconds, options_.longest_wait());
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

std::vector<int32_t> RankGroup::from_first(const std::vector<int32_t>& own) {
  const std::string bytes = from_first(std::string(reinterpret_cast<const char*>(own.data()), 4 * own.size()));
  std::vector<int32_t> all(bytes.size() / 4);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(all.data()));
  return all;
}

}  // namespace crest
