// Rank 0's server for the control channel (comm/control.h): one thread for all ranks.
#pragma once
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "comm/socket.h"
#include "core/thread.h"

namespace crest {

// First word of a rank's greeting. Changes with the protocol.
inline constexpr const char* control_magic = "crest-control-6";
// Seconds for complaints of others. A rank without a complaint is then called silent.
inline constexpr double blame_seconds = 2;

// Messages from rank to server: H hello (key: rank, number of ranks, kind; value: magic and a
// random number), J join (value: proof), N no: the server has another secret, S set, G get, X
// exchange (key: the ranks of a group, or none for all, and the call; value: the rank's own), F
// failed in a collective, P a watchdog's word (key: progress and state; value: the rank's work and
// collective), E goodbye. From server to rank: C challenge (key: a random number, value: the
// server's proof), A all have joined, R rejected (key: the rank that did not join; value: why), V
// value (of an exchange: all values of the group), L lost (key: rank, value: why; "": broken
// connection), B to blame (key: rank, -1: nobody), P to each joined rank, and regularly to the
// watchdogs.
class ControlServer {
 public:
  // Limits for connections without a proof: anybody who reaches the port can open one. The oldest
  // makes room for a new one, silent ones first.
  struct Strangers {
    size_t most = 64;
    double seconds = 10;  // time to identify themselves
  };
  // seconds: time for the ranks, and any watchdogs, to join.
  ControlServer(Socket listener, int size, double seconds, const ControlOptions& options = {},
                Strangers strangers = {64, 10});
  // Waits at most two seconds until all joined ranks have left or are lost; after a failure it does
  // not wait.
  ~ControlServer();

 private:
  struct Peer {
    Socket socket;
    FrameReader reader;
    int rank = -1;              // -1: a stranger
    Introduction said;          // by a stranger, without proof yet
    std::string numbers[2];     // of peer and server; empty: the peer has said nothing
    bool watchdog = false;      // of the rank
    Clock::time_point heard{};  // from a watchdog
    Activity::Seen seen;        // the rank's work, according to its watchdog
    Clock::time_point moved{};  // when `seen` last changed
    bool greeted() const { return !numbers[0].empty(); }
    Clock::time_point deadline{};  // for a stranger
    bool failed = false, left = false;
    std::string wanted;                  // the key it waits for; "": none
    std::optional<std::string> offered;  // its value for an exchange that others have not joined yet
    std::string among, offered_to;       // the group's ranks ("0,2"; "": all), the call
  };
  using OfRanks = std::vector<std::pair<int, std::string>>;  // rank, and its work
  static std::string said_of_ranks(const OfRanks& of_ranks);
  static int odd_one(const OfRanks& of_ranks);
  void serve();
  void step();
  void read(Peer& peer);
  void accept_all();
  bool close_oldest_stranger(bool greeted);
  void make_room();
  void close_late_strangers();
  void handle(Peer& peer, const Frame& frame);
  void greet(Peer& peer, const Frame& frame);
  void join(Peer& peer, const Frame& frame);
  void note_refusal(int rank, const std::string& why);
  void watch();
  void watch_progress(Clock::time_point now);
  void take_word(Peer& peer, const Frame& frame);
  void exchange();
  void answer(const std::vector<Peer*>& group);
  void tell_different_calls(const OfRanks& calls);
  void give_up_joining();
  void lose(Peer& peer);
  void tell_lost(int rank, const std::string& why);
  void answer_blame();
  void tell_all(const Frame& frame);
  bool has(int rank, bool watchdog) const;
  bool is_in(int rank) const { return has(rank, false) && (options_.watchdog <= 0 || has(rank, true)); }
  int joined() const;
  bool all_left() const;

  Socket listener_;
  int size_;
  double seconds_;
  ControlOptions options_;
  Strangers strangers_;
  Clock::time_point join_deadline_, no_accept_until_{}, last_step_, next_word_{};
  std::vector<Peer> peers_;
  std::map<std::string, std::string> values_;
  std::map<int, std::string> refused_;  // why a process with this rank's number was refused
  bool complete_ = false;
  std::optional<int> lost_;
  std::string why_lost_;
  std::optional<Clock::time_point> first_failure_;
  bool blamed_ = false;
  std::atomic<bool> ending_ = false;
  Thread thread_;
};

}  // namespace crest
