// How the ranks of a run find each other and hear of each other's end, whatever library moves the data. Rank 0 hosts a
// small server that all ranks keep a connection to: keys and values (addresses, identifiers of a communicator), and
// who is gone. A rank whose connection breaks without a farewell is gone, and all others are told its number.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/comm.h"
#include "comm/environment.h"
#include "comm/socket.h"

namespace crest {

class ControlServer;

// One rank's side. Used by one thread. All waits end with an Error at the latest when their time is over.
class Control {
 public:
  // Returns once all ranks have joined. Throws when they did not come within `seconds`, naming those that are missing.
  // listener: rank 0's socket where the launcher has opened it already; else it listens on the environment's port.
  static std::unique_ptr<Control> join(const RankEnvironment& environment, double seconds, Socket listener = Socket());
  // Says farewell; rank 0 waits a moment for the others' first.
  ~Control();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  // Of this rank's interface to rank 0.
  const std::string& address() const { return address_; }

  void set(const std::string& key, const std::string& value);
  // Waits until somebody has set the key. Throws PeerLost when a rank is gone meanwhile.
  std::string get(const std::string& key, double seconds);
  // Throws PeerLost when a rank is gone. Does not wait.
  void check(const std::string& where);
  // A collective did not end: finds out which rank is to blame (gone, or silent while others complain) and throws.
  [[noreturn]] void blame(const std::string& problem, const std::string& where);

 private:
  Control(const RankEnvironment& environment, double seconds, Socket listener);
  void greet(double seconds);
  bool answered(Frame& answer, Clock::time_point deadline);
  // The next frame of one of these types; notices of lost ranks are kept. False: none until the deadline.
  bool wait_for(const char* types, Frame& frame, Clock::time_point deadline);
  void take(const Frame& frame);
  void send(const Frame& frame);
  [[noreturn]] void throw_lost(const std::string& where) const;

  RankEnvironment environment_;
  std::unique_ptr<ControlServer> server_;  // rank 0's
  Socket socket_;
  FrameReader reader_;
  std::string address_;
  std::optional<int> lost_;
  bool told_ = false;  // by rank 0, not by a connection that broke
};

}  // namespace crest
