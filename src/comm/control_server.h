// Rank 0's server for the control channel (comm/control.h): a thread that answers all ranks.
#pragma once
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/socket.h"

namespace crest {

// First word of a rank's greeting. Changes with the protocol.
inline constexpr const char* control_magic = "crest-control-1";
// How long others may still complain before a rank that did not is called silent.
inline constexpr double blame_seconds = 2;

// Messages from rank to server: J join (key: rank, value: magic and number of ranks), S set, G get,
// F failed in a collective, E goodbye. From server to rank: A all have joined, R rejected (value:
// why), V value, L lost (key: rank), B to blame (key: rank, -1: nobody).
class ControlServer {
 public:
  // Limits on connections that have not identified themselves as a rank: anybody who reaches the
  // port can open one. The oldest one is closed to make room for a new one.
  struct Strangers {
    size_t most = 64;
    double seconds = 10;  // time to identify themselves
  };
  // seconds: time for the ranks to join.
  ControlServer(Socket listener, int size, double seconds, Strangers strangers = {64, 10});
  // Waits until all joined ranks have left or are gone, at most two seconds; does not wait after a
  // failure.
  ~ControlServer();

 private:
  struct Peer {
    Socket socket;
    FrameReader reader;
    int rank = -1;                 // -1: a stranger
    Clock::time_point deadline{};  // for a stranger
    bool failed = false, left = false;
    std::string wanted;  // the key that it waits for; "": none
  };
  void serve();
  void step();
  void read(Peer& peer);
  void accept_all();
  bool close_oldest_stranger();
  void close_late_strangers();
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
  Strangers strangers_;
  Clock::time_point join_deadline_, no_accept_until_{};
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
