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
#include <cstring>
#include <set>

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
  // So that accepting until the queue is empty does not block.
  fcntl(listener_.fd(), F_SETFL, fcntl(listener_.fd(), F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { serve(); });
}

ControlServer::~ControlServer() {
  ending_ = true;
  thread_.join();
}

void ControlServer::serve() {
  std::optional<Clock::time_point> end;
  for (;;) {
    if (ending_ && !end) end = after(lost_ || blamed_ ? 0.2 : 2);  // the last messages are still on their way
    if (end && (all_left() || Clock::now() > *end)) return;
    step();
  }
}

void ControlServer::step() {
  // poll ignores -1: a closed peer, or briefly the listener, when file descriptors have run out
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

// Every watchdog sends a word several times within the limit, as the server does.
void ControlServer::watch() {
  auto now = Clock::now();
  bool asleep =
      now > last_step_ + std::chrono::seconds(1);  // this process was stopped: what was sent is still to be read
  last_step_ = now;
  if (options_.watchdog <= 0 || lost_) return;
  if (now > next_word_) {
    next_word_ = after(word_interval(options_.watchdog));
    for (auto& p : peers_)
      if (p.watchdog && !p.left) send_all(p.socket, encode({'P', "", ""}));
  }
  for (auto& p : peers_) {
    if (!p.watchdog || p.left) continue;
    if (asleep) p.heard = now;
    if (now < p.heard + std::chrono::duration<double>(options_.watchdog)) continue;
    std::string last = p.doing.empty() ? "" : fmt::format("; last heard from in {}", p.doing);
    return tell_lost(p.rank, fmt::format("rank {} has not answered for {:g} s{}", p.rank, options_.watchdog, last));
  }
}

void ControlServer::read(Peer& peer) {
  bool open = peer.reader.receive(peer.socket);
  for (Frame frame; peer.socket.is_open() && peer.reader.next(frame);) handle(peer, frame);
  if (!open || (peer.rank < 0 && peer.reader.waiting() > largest_greeting)) lose(peer);
}

// Accepts all waiting connections. A rank among them has already sent its greeting, so it is not
// one of the strangers that make room for the next.
void ControlServer::accept_all() {
  for (int i = 0; i < 128; ++i) {
    Socket s(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!s.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      if (close_oldest_stranger(false) || close_oldest_stranger(true)) continue;
      no_accept_until_ = after(1e-3 * poll_ms);  // they wait in the listener's queue
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

// Ranks whose proof is on its way may all come at once.
void ControlServer::make_room() {
  for (bool greeted : {false, true}) {
    auto count =
        std::count_if(peers_.begin(), peers_.end(), [&](auto& p) { return p.rank < 0 && p.greeted() == greeted; });
    if (size_t(count) >= strangers_.most + (greeted ? 2 * size_t(size_) : 0)) close_oldest_stranger(greeted);
  }
}

// peers_ is in the order of arrival.
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
  if (peer.rank < 0) {  // not one of our ranks, unless it proves to be
    if (frame.type == 'H' && !peer.greeted()) return greet(peer, frame);
    if (frame.type == 'J' && peer.greeted()) return join(peer, frame);
    return peer.socket.close();
  }
  switch (frame.type) {
    case 'P': peer.heard = Clock::now(), peer.doing = frame.value; return;
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
    case 'X': return exchange(peer, frame.value);
    case 'F':
      peer.failed = true;
      if (!first_failure_) first_failure_ = Clock::now();
      return;
    case 'E': peer.left = true; return;
    default: return;
  }
}

// Answers when all ranks have joined: by then each has offered one value.
void ControlServer::exchange(Peer& peer, const std::string& own) {
  peer.offered = own;
  std::vector<Peer*> ranks(size_t(size_), nullptr);
  for (auto& p : peers_)
    if (p.rank >= 0 && !p.watchdog && p.offered) ranks[size_t(p.rank)] = &p;
  if (std::find(ranks.begin(), ranks.end(), nullptr) != ranks.end()) return;
  Frame all = {'V', "", ""};
  for (Peer* p : ranks) all.value += *p->offered, p->offered.reset();
  std::string text = encode(all);
  for (Peer* p : ranks) send_all(p->socket, text);
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
    why = fmt::format("rank {} was started with a different number of ranks than rank 0, which has {}", rank, size_);
  else if (rank < 0 || rank >= size_)
    why = fmt::format("rank {} is not one of {}", rank, size_);
  else if (std::any_of(peers_.begin(), peers_.end(), [&](auto& p) { return p.rank == rank && p.watchdog == watchdog; }))
    why = fmt::format("two processes are rank {}", rank);
  if (!why.empty()) {
    send_all(peer.socket, encode({'R', "", why}));
    return peer.socket.close();
  }
  peer.rank = rank, peer.watchdog = watchdog, peer.heard = Clock::now();
  if (lost_) send_all(peer.socket, encode({'L', std::to_string(*lost_), ""}));
  if (watchdog) send_all(peer.socket, encode({'P', "", ""}));
  if (watchdog || joined() < size_) return;
  complete_ = true;
  tell_all({'A', "", ""});
}

void ControlServer::give_up_joining() {
  std::set<int> missing;
  for (int r = 0; r < size_; ++r) missing.insert(r);
  for (auto& p : peers_)
    if (!p.watchdog) missing.erase(p.rank);
  std::vector<std::string> names;
  for (int r : missing) {
    if (names.size() == 8) {
      names.emplace_back("...");
      break;
    }
    names.push_back(std::to_string(r));
  }
  std::string why = fmt::format("rank{} {} did not start within {:g} s ({} of {} did)", missing.size() == 1 ? "" : "s",
                                crest::join(names, ", "), seconds_, joined(), size_);
  tell_all({'R', "", why});
  lost_ = *missing.begin();
}

void ControlServer::lose(Peer& peer) {
  peer.socket.close();
  if (peer.rank < 0 || peer.left) return;
  peer.left = true;
  if (lost_) return;  // the first one is the cause; others follow because of it
  tell_lost(peer.rank, "");
}

void ControlServer::tell_lost(int rank, const std::string& why) {
  lost_ = rank;
  tell_all({'L', std::to_string(rank), why});
}

void ControlServer::answer_blame() {
  if (!first_failure_ || lost_) return;
  int blamed = -1;
  bool complain = false;
  for (auto& p : peers_) {
    if (p.rank < 0 || p.watchdog || p.failed) continue;
    blamed = p.rank;
    complain = !p.left;  // it may still complain; one that has left cannot
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

int ControlServer::joined() const {
  return int(std::count_if(peers_.begin(), peers_.end(), [](auto& p) { return p.rank >= 0 && !p.watchdog; }));
}

bool ControlServer::all_left() const {
  return std::all_of(peers_.begin(), peers_.end(), [](auto& p) { return p.rank < 0 || p.left; });
}

}  // namespace crest
