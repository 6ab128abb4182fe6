#include "comm/control_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "comm/secret.h"
#include "comm/watchdog.h"
#include "core/hmac.h"
#include "core/text.h"

namespace crest {

static constexpr int poll_ms = 50;
static constexpr size_t largest_greeting = 256;  // bytes

ControlServer::ControlServer(Socket listener, int size, double seconds, const ControlOptions& options,
                             Strangers strangers)
    : listener_(std::move(listener)),
      size_(size),
      seconds_(seconds),
      options_(options),
      strangers_(strangers),
      join_deadline_(after(seconds)),
      last_step_(Clock::now()) {
  // Non-blocking, to accept until the queue is empty.
  fcntl(listener_.fd(), F_SETFL, fcntl(listener_.fd(), F_GETFL) | O_NONBLOCK);
  // Without a server, every rank finds its connection broken and rank 0 lost.
  thread_ = Thread([this] { serve(); }, [this](auto&) { peers_.clear(), listener_.close(); });
}

ControlServer::~ControlServer() {
  ending_ = true;
  thread_.join();
}

void ControlServer::serve() {
  std::optional<Clock::time_point> end;
  for (;;) {
    if (ending_ && !end) end = after(lost_ || blamed_ ? 0.2 : 2);  // last messages are still on their way
    if (end && (all_left() || Clock::now() > *end)) return;
    step();
  }
}

void ControlServer::step() {
  // poll ignores -1: a closed peer, or briefly the listener when file descriptors run out
  std::vector<pollfd> polls = {{Clock::now() < no_accept_until_ ? -1 : listener_.fd(), POLLIN, 0}};
  for (auto& p : peers_) polls.push_back({p.socket.fd(), POLLIN, 0});
  poll(polls.data(), polls.size(), poll_ms);
  for (size_t i = 1; i < polls.size(); ++i)
    if (polls[i].revents) read(peers_[i - 1]);
  close_late_strangers();
  if (polls[0].revents) accept_all();
  if (!complete_ && !lost_ && Clock::now() > join_deadline_) give_up_joining();
  answer_blame();
  watch();
}

// Watchdogs and server send several words within the limit.
void ControlServer::watch() {
  auto now = Clock::now();
  bool asleep = now > last_step_ + std::chrono::seconds(1);  // this process was stopped, and has unread messages
  last_step_ = now;
  if (options_.watchdog <= 0 || lost_) return;
  if (asleep)
    for (auto& p : peers_) p.heard = p.moved = now;
  if (now > next_word_) {
    next_word_ = after(word_interval(options_.watchdog));
    for (auto& p : peers_)
      if (p.watchdog && !p.left) send_all(p.socket, encode({'P', "", ""}));
  }
  for (auto& p : peers_) {
    if (!p.watchdog || p.left) continue;
    if (now < p.heard + std::chrono::duration<double>(options_.watchdog)) continue;
    std::string last = p.seen.doing.empty() ? "" : fmt::format("; last heard from in {}", p.seen.text());
    return tell_lost(p.rank, fmt::format("rank {} has not answered for {:g} s{}", p.rank, options_.watchdog, last));
  }
  watch_progress(now);
}

std::string ControlServer::said_of_ranks(const OfRanks& of_ranks) {
  constexpr size_t most = 8;
  std::vector<std::string> shown;
  for (size_t r = 0; r < std::min(most, of_ranks.size()); ++r)
    shown.push_back(fmt::format("rank {} in {}", of_ranks[r].first, of_ranks[r].second));
  if (of_ranks.size() > most) shown.emplace_back("...");
  return crest::join(shown, "; ");
}

// The first rank of the minority; -1: all do the same. Two ranks have no minority, so the first one
// counts as right.
int ControlServer::odd_one(const OfRanks& of_ranks) {
  std::map<std::string, int> count;
  for (auto& said : of_ranks) ++count[said.second];
  const std::string& first = of_ranks[0].second;
  auto is_odd = [&](auto& said) { return said.second != first && count[said.second] <= count[first]; };
  auto odd = std::find_if(of_ranks.begin(), of_ranks.end(), is_odd);
  return odd != of_ranks.end() ? odd->first : count.size() > 1 ? of_ranks[0].first : -1;
}

static constexpr const char* other_calls_advice =
    "The ranks run other programs, or one of them has hung. A network that loses data shows the same.";

static constexpr const char* no_end_advice =
    "A rank or its GPU hangs, and the others wait for it. On a GPU, dmesg shows faults as Xid. If a micro batch "
    "takes this long, raise --watchdog.";

// A run hangs if no rank has moved for long. A waiting rank moves only with the others. A working
// rank may need longer for a piece of work, or any announced time.
void ControlServer::watch_progress(Clock::time_point now) {
  if (options_.hang <= 0 || !complete_) return;
  std::vector<const Peer*> ranks(size_t(size_), nullptr);
  for (auto& p : peers_)
    if (p.watchdog) ranks[size_t(p.rank)] = &p;
  bool all_left = true;
  double longest = 0;
  for (const Peer* p : ranks) {
    if (!p || (!p->left && p->seen.state == Activity::free)) return;
    double limit = !p->left && p->seen.state == Activity::steady ? options_.hang_at_work : options_.hang;
    if (now < p->moved + std::chrono::duration<double>(limit)) return;
    longest = std::max(longest, limit);
    all_left &= p->left;
  }
  if (all_left) return;
  OfRanks doing, collective;
  int absent = -1;
  bool waits = false;
  for (const Peer* p : ranks) {
    doing.emplace_back(p->rank, p->left ? "its end" : p->seen.text());
    collective.emplace_back(p->rank, p->seen.collective);
    const bool takes_part = !p->left && p->seen.state == Activity::waits;
    waits |= takes_part;
    if (absent < 0 && !takes_part) absent = p->rank;
  }
  std::string problem;
  int rank = -1;
  if (!waits)  // for each other on GPUs, where the host does not see it
    problem = "no rank finishes its work";
  else if (rank = absent >= 0 ? absent : odd_one(collective); absent >= 0)
    problem = fmt::format("rank {} does not take part in a collective", rank);
  else if (rank >= 0)
    problem = fmt::format("rank {} waits in another collective than the others", rank);
  else
    problem = "no data arrives between the ranks";
  tell_lost(rank, fmt::format("{}; nothing has moved for {:g} s: {}", problem, longest, said_of_ranks(doing)) + '\0' +
                      (waits ? other_calls_advice : no_end_advice));
}

void ControlServer::take_word(Peer& peer, const Frame& frame) {
  Activity::Seen seen;
  unsigned long long count = 0;
  char state = Activity::free;
  std::sscanf(frame.key.c_str(), "%llu %c", &count, &state);
  size_t end = frame.value.find('\0');
  seen.state = Activity::State(state), seen.count = count, seen.doing = frame.value.substr(0, end);
  if (end != std::string::npos) seen.collective = frame.value.substr(end + 1);
  peer.heard = Clock::now();
  if (seen.count != peer.seen.count) peer.moved = peer.heard;
  peer.seen = std::move(seen);
}

void ControlServer::read(Peer& peer) {
  bool open = peer.reader.receive(peer.socket);
  for (Frame frame; peer.socket.is_open() && peer.reader.next(frame);) handle(peer, frame);
  if (!open || (peer.rank < 0 && peer.reader.waiting() > largest_greeting)) lose(peer);
}

// Accepts all waiting connections. Ranks have already sent their greeting, so they are not treated
// as silent strangers, which are closed to make room.
void ControlServer::accept_all() {
  for (int i = 0; i < 128; ++i) {
    Socket s(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!s.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      if (close_oldest_stranger(false) || close_oldest_stranger(true)) continue;
      no_accept_until_ = after(1e-3 * poll_ms);  // connections wait in the listener's queue
      return;
    }
    if (!s.is_open() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!s.is_open()) return;
    int on = 1;
    setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::erase_if(peers_, [](const Peer& p) { return p.rank < 0 && !p.socket.is_open(); });
    make_room();
    peers_.emplace_back();
    peers_.back().socket = std::move(s);
    peers_.back().deadline = after(strangers_.seconds);
    read(peers_.back());
  }
}

// Many ranks may be about to send their proof at once.
void ControlServer::make_room() {
  for (bool greeted : {false, true}) {
    auto count =
        std::count_if(peers_.begin(), peers_.end(), [&](auto& p) { return p.rank < 0 && p.greeted() == greeted; });
    if (size_t(count) >= strangers_.most + (greeted ? 2 * size_t(size_) : 0)) close_oldest_stranger(greeted);
  }
}

// peers_ is in order of arrival.
bool ControlServer::close_oldest_stranger(bool greeted) {
  for (auto& p : peers_) {
    if (p.rank >= 0 || !p.socket.is_open() || p.greeted() != greeted) continue;
    p.socket.close();
    return true;
  }
  return false;
}

void ControlServer::close_late_strangers() {
  for (auto& p : peers_)
    if (p.rank < 0 && p.socket.is_open() && Clock::now() > p.deadline) p.socket.close();
}

void ControlServer::handle(Peer& peer, const Frame& frame) {
  if (peer.rank < 0) {  // none of our ranks without a proof
    if (frame.type == 'H' && !peer.greeted()) return greet(peer, frame);
    if (frame.type == 'J' && peer.greeted()) return join(peer, frame);
    if (frame.type == 'N' && peer.greeted())
      note_refusal(peer.said.rank, fmt::format("rank {} was started with another secret than rank 0", peer.said.rank));
    return peer.socket.close();
  }
  switch (frame.type) {
    case 'P': return take_word(peer, frame);
    case 'S':
      values_[frame.key] = frame.value;
      for (auto& p : peers_)
        if (p.wanted == frame.key) send_all(p.socket, encode({'V', frame.key, frame.value})), p.wanted.clear();
      return;
    case 'G':
      if (auto it = values_.find(frame.key); it != values_.end())
        send_all(peer.socket, encode({'V', frame.key, it->second}));
      else
        peer.wanted = frame.key;
      return;
    case 'X': {
      const size_t end = std::min(frame.key.find('\n'), frame.key.size());
      peer.offered = frame.value, peer.among = frame.key.substr(0, end);
      peer.offered_to = frame.key.substr(std::min(end + 1, frame.key.size()));
      return exchange();
    }
    case 'F':
      peer.failed = true;
      if (!first_failure_) first_failure_ = Clock::now();
      return;
    case 'E': peer.left = true, peer.moved = Clock::now(); return exchange();
    default: return;
  }
}

static std::vector<int> members_of(const std::string& among, int all) {
  std::vector<int> members;
  if (among.empty())
    for (int r = 0; r < all; ++r) members.push_back(r);
  for (size_t at = 0; at < among.size(); at = std::min(among.find(',', at), among.size() - 1) + 1)
    members.push_back(std::atoi(among.c_str() + at));
  return members;
}

// Answers the groups with values from all their ranks.
void ControlServer::exchange() {
  if (lost_) return;
  std::map<int, Peer*> ranks;
  std::map<std::string, size_t> groups;  // number of waiting ranks in each
  for (auto& p : peers_) {
    if (p.rank < 0 || p.watchdog) continue;
    ranks[p.rank] = &p;
    if (p.offered) ++groups[p.among];
  }
  size_t waiting = 0;
  for (auto& [among, offers] : groups) {
    std::vector<Peer*> group;
    for (int r : members_of(among, size_))
      if (auto it = ranks.find(r); it != ranks.end() && it->second->offered && it->second->among == among)
        group.push_back(it->second);
      else if (it != ranks.end() && it->second->left)
        return tell_lost(r, fmt::format("rank {} has ended, and others wait for it", r));
      else
        waiting += std::exchange(offers, 0);
    if (offers) answer(group);
    if (lost_) return;
  }
  if (waiting < size_t(size_)) return;
  OfRanks calls;
  for (auto& [r, p] : ranks) calls.emplace_back(r, p->offered_to + (p->among.empty() ? "" : " of ranks " + p->among));
  tell_different_calls(calls);
}

void ControlServer::tell_different_calls(const OfRanks& calls) {
  const int odd = odd_one(calls);
  tell_lost(odd, fmt::format("rank {} waits in another collective than the others: {}", odd, said_of_ranks(calls)) +
                     '\0' + other_calls_advice);
}

void ControlServer::answer(const std::vector<Peer*>& group) {
  OfRanks calls;
  for (Peer* p : group) calls.emplace_back(p->rank, p->offered_to);
  if (odd_one(calls) >= 0) return tell_different_calls(calls);
  Frame all = {'V', "", ""};
  for (Peer* p : group) all.value += *p->offered, p->offered.reset();
  std::string text = encode(all);
  for (Peer* p : group) send_all(p->socket, text);
}

void ControlServer::greet(Peer& peer, const Frame& frame) {
  char number[65] = "", kind = 0;
  int used = 0;
  Introduction& said = peer.said;
  bool ours = std::sscanf(frame.key.c_str(), "%d %d %c%n", &said.rank, &said.size, &kind, &used) == 3 &&
              size_t(used) == frame.key.size() &&
              (kind == Introduction::rank_itself || kind == Introduction::watchdog) &&
              frame.value.starts_with(control_magic + std::string(" ")) &&
              std::sscanf(frame.value.c_str() + std::strlen(control_magic), " %64[0-9a-f]%n", number, &used) == 1;
  if (!ours) {
    send_all(peer.socket, encode({'R', "", "not a rank of this run"}));
    return peer.socket.close();
  }
  said.kind = Introduction::Kind(kind);
  peer.numbers[0] = number, peer.numbers[1] = random_hex(16);
  std::string own = proof(options_.secret, "server", peer.numbers[0], peer.numbers[1]);
  send_all(peer.socket, encode({'C', peer.numbers[1], own}));
}

void ControlServer::join(Peer& peer, const Frame& frame) {
  const Introduction& said = peer.said;
  std::string who = fmt::format("{} {} {}", said.rank, said.size, char(said.kind));
  if (!same_digest(frame.value, proof(options_.secret, who, peer.numbers[0], peer.numbers[1])))
    return peer.socket.close();
  int rank = said.rank;
  bool watchdog = said.kind == Introduction::watchdog;
  std::string why;
  if (said.size != size_)
    why = fmt::format("rank {} was started with a different number of ranks ({}) than rank 0 ({})", rank, said.size,
                      size_);
  else if (rank < 0 || rank >= size_)
    why = fmt::format("rank {} is not one of {}", rank, size_);
  else if (has(rank, watchdog))
    why = fmt::format("two processes are rank {}", rank);
  if (!why.empty()) {
    note_refusal(rank, why);
    send_all(peer.socket, encode({'R', "", why}));
    return peer.socket.close();
  }
  peer.rank = rank, peer.watchdog = watchdog, peer.heard = peer.moved = Clock::now();
  send_all(peer.socket, encode({'P', "", ""}));
  if (lost_) send_all(peer.socket, encode({'L', std::to_string(*lost_), why_lost_}));
  if (complete_ || joined() < size_) return;
  complete_ = true;
  tell_all({'A', "", ""});
}

// A stranger may say anything.
void ControlServer::note_refusal(int rank, const std::string& why) {
  if (refused_.size() < size_t(size_) + 8 || refused_.count(rank)) refused_[rank] = why;
}

void ControlServer::give_up_joining() {
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r)
    if (!is_in(r)) missing.push_back(r);
  std::vector<std::string> names;
  for (int r : missing) names.push_back(names.size() < 8 ? std::to_string(r) : "...");
  names.resize(std::min<size_t>(names.size(), 9));
  std::string why = fmt::format("rank{} {} did not start within {:g} s ({} of {} did)", missing.size() == 1 ? "" : "s",
                                crest::join(names, ", "), seconds_, joined(), size_);
  // A refused process says more: it may be a missing rank, with any number.
  for (auto& [rank, refusal] : refused_)
    if (!is_in(rank)) why += "; " + refusal;
  lost_ = missing[0], why_lost_ = why;
  tell_all({'R', std::to_string(missing[0]), why});
}

void ControlServer::lose(Peer& peer) {
  peer.socket.close();
  if (peer.rank < 0 || peer.left) return;
  peer.left = true;
  if (lost_) return;  // the first one is the cause of the others
  tell_lost(peer.rank, "");
}

void ControlServer::tell_lost(int rank, const std::string& why) {
  lost_ = rank, why_lost_ = why;
  tell_all({'L', std::to_string(rank), why});
}

void ControlServer::answer_blame() {
  if (!first_failure_ || lost_) return;
  int blamed = -1;
  bool complain = false;
  for (auto& p : peers_) {
    if (p.rank < 0 || p.watchdog || p.failed) continue;
    blamed = p.rank;
    complain = !p.left;  // it may still complain, unless it has left
    if (p.left) break;
  }
  if (complain && Clock::now() < *first_failure_ + std::chrono::duration<double>(blame_seconds)) return;
  for (auto& p : peers_)
    if (p.rank >= 0 && p.failed) send_all(p.socket, encode({'B', std::to_string(blamed), ""}));
  first_failure_.reset();
  blamed_ = true;
}

void ControlServer::tell_all(const Frame& frame) {
  for (auto& p : peers_)
    if (p.rank >= 0) send_all(p.socket, encode(frame));
}

bool ControlServer::has(int rank, bool watchdog) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](auto& p) { return p.rank == rank && p.watchdog == watchdog; });
}

int ControlServer::joined() const {
  int count = 0;
  for (int r = 0; r < size_; ++r) count += is_in(r);
  return count;
}

bool ControlServer::all_left() const {
  return std::all_of(peers_.begin(), peers_.end(), [](auto& p) { return p.rank < 0 || p.left; });
}

}  // namespace crest
