// How the ranks of a run find each other and notice when one ends, whatever library moves the data.
// Rank 0 runs a small server to which all ranks stay connected. It stores keys and values
// (addresses, identifiers of a communicator) and tracks who is gone. A rank whose connection breaks
// without a goodbye is gone, and the server sends its number to all others.
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

// Of the values of all ranks together in Control::exchange.
inline constexpr size_t exchange_bytes = size_t(512) << 10;

// The error for a lost rank. why: "" if its connection broke, else a sentence, and an optional
// advice after a zero byte.
PeerLost lost_rank(int rank, const std::string& why, const std::string& where);

// How a process introduces itself on a connection to the server: it says who it is and sends a
// random number; the server answers with another one and a proof that it knows the secret (HMAC
// over both), and the process proves the same. Whoever does not know the secret learns nothing and
// is not let in. The server answers with its first word. What follows is plain text.
struct Introduction {
  enum Kind : char { rank_itself = 'R', watchdog = 'W' };
  int rank = 0, size = 1;
  Kind kind = rank_itself;
  std::string secret;  // may be empty
};
enum class Greeting { done, refused, closed, late, forged };  // forged: the server does not know the secret
// refusal: the server's answer, if it refused.
Greeting introduce(const Socket& socket, FrameReader& reader, const Introduction& own, Clock::time_point deadline,
                   Frame& refusal);

// The same from the first connection on, and again when the server closes it before it has
// answered: it may take a process that was held up, or one of many at once, for a silent stranger.
// Throws an Error with what is wrong, and PeerLost if rank 0 is not there within `seconds`.
void join_server(const RankEnvironment& to, const Introduction& own, double seconds, Socket& socket,
                 FrameReader& reader);

struct ControlOptions {
  std::string secret = "";
  double watchdog = 0;  // seconds without a word from a rank's watchdog after which it is lost; 0: there are none
  // Seconds without progress on any rank after which the run hangs: if all wait for others, and if
  // one of them works. 0: no limit. Needs watchdogs.
  double hang = 0, hang_at_work = 0;
  // Starts this rank's watchdog, before the rank itself joins: a rank that has its watchdog can
  // stop at any time and is noticed. Needed with `watchdog`.
  std::function<void(const RankEnvironment&)> guard = {};
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
};

// One rank's side. Used by one thread. Every wait ends with an Error when its time is over.
class Control {
 public:
  // Returns after all ranks have joined. Throws if they did not within `seconds`, naming the
  // missing ones. listener: rank 0's socket if the launcher has opened it; otherwise it listens on
  // the environment's port.
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
  // Waits until somebody has set the key. Throws PeerLost if a rank dies meanwhile.
  std::string get(const std::string& key, double seconds);
  // The values of some ranks, one after the other in this order; they call it together, for the
  // same call. Throws PeerLost if a rank ends meanwhile, or calls another one. At most
  // exchange_bytes in all. among: empty: all ranks.
  std::string exchange(const CollectiveCall& call, const std::string& own, const std::vector<int>& among = {});
  // Throws PeerLost if a rank is gone. Does not wait.
  void check(const std::string& where);
  // For a collective that did not finish: finds out which rank is to blame (dead, or silent while
  // others complain) and throws.
  [[noreturn]] void blame(const std::string& problem, const std::string& where);

 private:
  Control(const RankEnvironment& environment, double seconds, Socket listener, const ControlOptions& options);
  void join_all(double seconds);
  // The next frame of one of these types; notices of lost ranks are stored. False: none before the
  // deadline.
  bool wait_for(const char* types, Frame& frame, Clock::time_point deadline);
  void take(const Frame& frame);
  void send(const Frame& frame);
  [[noreturn]] void throw_lost(const std::string& where) const;

  RankEnvironment environment_;
  std::string secret_;
  std::shared_ptr<Activity> activity_;
  std::unique_ptr<ControlServer> server_;  // rank 0's
  Socket socket_;
  FrameReader reader_;
  std::string address_;
  std::optional<int> lost_;
  std::string why_lost_;   // "": its connection broke
  bool reported_ = false;  // by rank 0, not inferred from a broken connection
};

}  // namespace crest
