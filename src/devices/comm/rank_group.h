// The processes of a run as one of them sees them: they have found each other, exchange data, and
// agree on what to do next.
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
  // What this rank does, for the message of the others if it is lost: "step 12". steady: it counts
  // progress (comm/activity.h).
  void doing(const std::string& what, bool steady = false) { activity_->doing(what, steady); }
  // Call when the main thread has met PeerLost: it ends by itself, with what it has to record.
  // Returns what to report: for a rank that was killed because it did not answer, what the watchdog
  // found.
  PeerLost noticed(const PeerLost& lost);
  // Call after the work has succeeded: the others need not be told that this rank is gone.
  void done();

  // Rank 0 calls it when it has checked and prepared what all need; the others wait for that,
  // however long it takes. Throws PeerLost if a rank ends meanwhile.
  void start_after_first();
  // How the devices of all ranks are connected, if they are not CPUs. Comes before the calls below.
  using Connect = std::function<std::unique_ptr<Communicator>(Control& control, Communicator& host)>;
  void connect_by(Connect connect) { connect_ = std::move(connect); }
  // Of tensors, on the ranks' devices. Connects all ranks, in the first call.
  Communicator& communicator();
  // Of values in host memory. The same on CPUs.
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
  std::optional<PeerLost> lost_, silent_;  // silent_: of a rank whose connection stood
  bool over_ = false;                      // the main thread has noticed the loss by itself, or has finished
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace crest
