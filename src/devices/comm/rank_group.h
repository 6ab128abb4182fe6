// The processes of a run, as seen by one of them: they have found each other, exchange data, and
// agree on the next action.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/control.h"
#include "comm/environment.h"
#include "comm/rank_options.h"
#include "comm/secret.h"
#include "comm/watchdog.h"

namespace crest {

class RankGroup {
 public:
  // Returns after all ranks have joined. Rank 0 of launch_ranks() finds its port already open.
  static std::unique_ptr<RankGroup> join(const RankEnvironment& environment, const RankOptions& options);
  ~RankGroup();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  int local_rank() const { return environment_.local_rank; }
  int local_size() const { return environment_.local_size; }
  bool leads() const { return rank() == 0; }

  const RankOptions& options() const { return options_; }
  // This rank's work, for the others' message if it is lost: "step 12". steady: it counts progress
  // (comm/activity.h).
  void doing(const std::string& what, bool steady = false) { activity_->doing(what, steady); }
  // Call when the main thread has caught PeerLost and ends by itself, after recording. Returns the
  // error to report: the watchdog's finding for a rank killed because of its silence.
  PeerLost noticed(const PeerLost& lost);
  // Call after the work has succeeded, so the others are not told that this rank is lost.
  void done();

  // Rank 0 calls it after checks and preparations for all ranks. The others wait for it without
  // limit. Throws PeerLost if a rank ends meanwhile.
  void start_after_first();
  // How to connect the devices of all ranks, unless they are CPUs. Comes before the calls below.
  using Connect = std::function<std::unique_ptr<Communicator>(Control& control, Communicator& host)>;
  void connect_by(Connect connect) { connect_ = std::move(connect); }
  // For tensors on the ranks' devices. The first call connects all ranks.
  Communicator& communicator();
  // For values in host memory. On CPUs it is the same one.
  Communicator& host();

  // All ranks call these together.
  bool any(bool own);
  double from_first(double own);
  std::string from_first(const std::string& own);
  std::vector<int32_t> from_first(const std::vector<int32_t>& own);

 private:
  RankGroup(const RankEnvironment& environment, const RankOptions& options);
  RankGroup(const RankGroup&) = delete;

  std::unique_ptr<Control> join_all();
  std::unique_ptr<Communicator> connect_all();
  void on_loss(const PeerLost& lost, bool silent);
  void set_over();

  RankEnvironment environment_;
  RankOptions options_;
  RankSecret secret_;
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  std::unique_ptr<Control> control_;
  Connect connect_;
  std::unique_ptr<Communicator> host_, communicator_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<PeerLost> lost_, silent_;  // silent_: a rank with an open connection
  bool over_ = false;                      // the main thread has noticed the loss by itself, or has finished
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace crest
