// A thread in every rank. It tells rank 0's server regularly that the process is alive, and hears
// of lost ranks. It has its own connection and never waits for the rank's work.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "comm/activity.h"
#include "comm/comm.h"
#include "comm/environment.h"
#include "comm/socket.h"
#include "core/thread.h"

namespace crest {

// Seconds between two words of a watchdog if others wait `limit` seconds for it.
double word_interval(double limit);

class Watchdog {
 public:
  // Connects within `seconds`, or throws as join_server(); the rank itself joins afterwards. limit:
  // seconds without a word from rank 0 until it is lost. on_loss: called once, in the thread;
  // silent: the lost rank's connection is open.
  using OnLoss = std::function<void(const PeerLost&, bool silent)>;
  Watchdog(const RankEnvironment& environment, const std::string& secret, double limit, double seconds,
           std::shared_ptr<const Activity> activity, OnLoss on_loss);
  // Says goodbye if `well`; otherwise the others hear that this rank is lost.
  void end(bool well);
  ~Watchdog() { end(false); }

 private:
  void run();
  void word();

  RankEnvironment environment_;
  double limit_;
  std::shared_ptr<const Activity> activity_;
  OnLoss on_loss_;
  Socket socket_;
  FrameReader reader_;
  std::atomic<bool> ending_ = false;
  Thread thread_;
};

}  // namespace crest
