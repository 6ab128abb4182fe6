// How the ranks of a run find each other and notice when one ends, with any library for data. Rank
// 0 runs a small server, and all ranks stay connected to it. It stores keys and values (addresses,
// identifiers of a communicator) and tracks lost ranks. If a connection breaks without a goodbye,
// its rank is lost, and the server tells all others.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/activity.h"
#include "comm/comm.h"
#include "comm/environment.h"
#include "comm/socket.h"

namespace crest {

class ControlServer;

// Limit on the values of all ranks together in Control::exchange.
inline constexpr size_t exchange_bytes = size_t(512) << 10;

// The error for a lost rank. why: "" for a broken connection, else a sentence, and optional advice
// after a zero byte.
PeerLost lost_rank(int rank, const std::string& why, const std::string& where);

// How a process introduces itself to the server. It sends its name and a random number. The server
// answers with its own number and a proof that it knows the secret (an HMAC over both numbers), and
// the process proves the same. Without the secret, a process learns nothing and is refused. The
// server answers with its first word. Everything after is plain text.
struct Introduction {
  enum Kind : char { rank_itself = 'R', watchdog = 'W' };
  int rank = 0, size = 1;
  Kind kind = rank_itself;
  std::string secret;  // may be empty
};
enum class Greeting { done, refused, closed, late, forged };  // forged: the server does not know the secret
// refusal: the server's answer if it refused.
Greeting introduce(const Socket& socket, FrameReader& reader, const Introduction& own, Clock::time_point deadline,
                   Frame& refusal);

// Connects and introduces itself. Tries again if the server closes the connection before its
// answer: the server may take a delayed process, or one of many at once, for a silent stranger.
// Throws an Error with the problem, and PeerLost if rank 0 is not there within `seconds`.
void join_server(const RankEnvironment& to, const Introduction& own, double seconds, Socket& socket,
                 FrameReader& reader);

struct ControlOptions {
  std::string secret = "";
  double watchdog = 0;  // seconds of silence of a rank's watchdog until the rank is lost; 0: no watchdogs
  // Seconds without progress on any rank until the run counts as hanging: if all ranks wait, and if
  // one of them works. 0: no limit. Needs watchdogs.
  double hang = 0, hang_at_work = 0;
  // Starts this rank's watchdog before the rank itself joins, so a rank is noticed whenever it
  // stops. Needed with `watchdog`.
  std::function<void(const RankEnvironment&)> guard = {};
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
};

// One rank's side, for a single thread. Every wait ends with an Error when its time is over.
class Control {
 public:
  // Returns after all ranks have joined. After `seconds` it throws and names the missing ranks.
  // listener: rank 0's socket if the launcher opened it, else rank 0 listens on the environment's
  // port.
  static std::unique_ptr<Control> join(const RankEnvironment& environment, double seconds, Socket listener = Socket(),
                                       const ControlOptions& options = {});
  // Says goodbye. Rank 0 first waits a moment for the others.
  ~Control();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  // Address of this rank's interface to rank 0.
  const std::string& address() const { return address_; }
  int port() const { return environment_.port; }  // of rank 0
  Activity& activity() { return *activity_; }

  void set(const std::string& key, const std::string& value);
  // Waits until a rank has set the key. Throws PeerLost if a rank dies meanwhile.
  std::string get(const std::string& key, double seconds);
  // The values of some ranks, in this order. These ranks call it together for the same call. Throws
  // PeerLost if a rank ends meanwhile, or makes another call. At most exchange_bytes in total.
  // among: empty: all ranks.
  std::string exchange(const CollectiveCall& call, const std::string& own, const std::vector<int>& among = {});
  // Throws PeerLost if a rank is gone. Does not wait.
  void check(const std::string& where);
  // For a collective that did not finish: finds the rank to blame (dead, or silent while others
  // complain) and throws.
  [[noreturn]] void blame(const std::string& problem, const std::string& where);

 private:
  Control(const RankEnvironment& environment, double seconds, Socket listener, const ControlOptions& options);
  void join_all(double seconds);
  // The next frame of one of these types. Notices of lost ranks are stored. False: none before the
  // deadline.
  bool wait_for(const char* types, Frame& frame, Clock::time_point deadline);
  void take(const Frame& frame);
  void send(const Frame& frame);
  [[noreturn]] void throw_lost(const std::string& where) const;

  RankEnvironment environment_;
  std::string secret_;
  std::shared_ptr<Activity> activity_;
  std::unique_ptr<ControlServer> server_;  // on rank 0
  Socket socket_;
  FrameReader reader_;
  std::string address_;
  std::optional<int> lost_;
  std::string why_lost_;   // "": a broken connection
  bool reported_ = false;  // by rank 0, not inferred from a broken connection
};

}  // namespace crest
