// A thread of every rank that tells rank 0's server that the process lives, and hears from it which
// one does not. It has a connection of its own and never waits for the rank's work.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/comm.h"
#include "comm/environment.h"
#include "comm/socket.h"

namespace crest {

// Seconds between two words of a watchdog that others wait `limit` seconds for.
double word_interval(double limit);

class Watchdog {
 public:
  // Connects; the rank has joined before. limit: seconds without a word from rank 0 after which it
  // is lost. on_loss: called in the thread, once; silent: the rank has said nothing, but its
  // connection stands.
  using OnLoss = std::function<void(const PeerLost&, bool silent)>;
  Watchdog(const RankEnvironment& environment, const std::string& secret, double limit, OnLoss on_loss);
  // Says goodbye if `well`; otherwise the others hear that this rank is gone.
  void end(bool well);
  ~Watchdog() { end(false); }

  // What the rank is doing: "step 12". For the message of the others when it is lost.
  void doing(std::string what);

 private:
  void run();
  bool word();

  double limit_;
  OnLoss on_loss_;
  Socket socket_;
  FrameReader reader_;
  std::mutex mutex_;
  std::string doing_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace crest
