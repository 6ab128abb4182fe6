// Rank 0's server of the control channel (comm/control.h): a thread that answers all ranks.
#pragma once
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/socket.h"

namespace crest {

// First word of a rank's greeting; changes with the protocol.
inline constexpr const char* control_magic = "crest-control-1";
// So long others may complain, too, before one that did not is called silent.
inline constexpr double blame_seconds = 2;

// Messages, rank to server: J join (key: rank, value: magic and number of ranks), S set, G get, F failed in a
// collective, E farewell. Server to rank: A all have joined, R refused (value: why), V value, L lost (key: rank),
// B to blame (key: rank, -1: nobody).
class ControlServer {
 public:
  // seconds: that the ranks have to join.
  ControlServer(Socket listener, int size, double seconds);
  // Waits until all that joined have left or are gone, at most two seconds, and not at all after a failure.
  ~ControlServer();

 private:
  struct Peer {
    Socket socket;
    FrameReader reader;
    int rank = -1;  // -1: has not joined
    bool failed = false, left = false;
    std::string wanted;  // the key it waits for; "": none
  };
  void serve();
  void step();
  void accept_one();
  void handle(Peer& peer, const Frame& frame);
  void join(Peer& peer, const Frame& frame);
  void give_up_joining();
  void lose(Peer& peer);
  void answer_blame();
  void tell_all(const Frame& frame);
  int joined() const;
  bool all_left() const;

  Socket listener_;
  int size_;
  double seconds_;
  Clock::time_point join_deadline_;
  std::vector<Peer> peers_;
  std::map<std::string, std::string> values_;
  bool complete_ = false;
  std::optional<int> lost_;
  std::optional<Clock::time_point> first_failure_;
  bool blamed_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace crest
