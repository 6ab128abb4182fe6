#include "comm/control_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "core/text.h"

namespace crest {

static constexpr int poll_ms = 50;
static constexpr size_t largest_greeting = 256;  // bytes

ControlServer::ControlServer(Socket listener, int size, double seconds, Strangers strangers)
    : listener_(std::move(listener)),
      size_(size),
      seconds_(seconds),
      strangers_(strangers),
      join_deadline_(after(seconds)) {
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
      if (close_oldest_stranger()) continue;
      no_accept_until_ = after(1e-3 * poll_ms);  // they wait in the listener's queue
      return;
    }
    if (!s.is_open() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!s.is_open()) return;
    int on = 1;
    setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::erase_if(peers_, [](const Peer& p) { return p.rank < 0 && !p.socket.is_open(); });
    auto strangers = std::count_if(peers_.begin(), peers_.end(), [](auto& p) { return p.rank < 0; });
    if (size_t(strangers) >= strangers_.most) close_oldest_stranger();
    peers_.emplace_back();
    peers_.back().socket = std::move(s);
    peers_.back().deadline = after(strangers_.seconds);
    read(peers_.back());
  }
}

// peers_ is in the order of arrival.
bool ControlServer::close_oldest_stranger() {
  for (auto& p : peers_) {
    if (p.rank >= 0 || !p.socket.is_open()) continue;
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
  if (peer.rank < 0 && frame.type != 'J') return peer.socket.close();  // not one of our ranks
  switch (frame.type) {
    case 'J': return join(peer, frame);
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
    case 'F':
      peer.failed = true;
      if (!first_failure_) first_failure_ = Clock::now();
      return;
    case 'E': peer.left = true; return;
    default: return;
  }
}

void ControlServer::join(Peer& peer, const Frame& frame) {
  int rank = std::atoi(frame.key.c_str());
  std::string expected = fmt::format("{} {}", control_magic, size_), why;
  bool ours = frame.value.rfind(control_magic, 0) == 0;
  if (frame.value != expected)
    why = ours ? fmt::format("rank {} was started with a different number of ranks than rank 0, which has {}", rank,
                             size_)
               : "not a rank of this run";
  else if (rank < 0 || rank >= size_)
    why = fmt::format("rank {} is not one of {}", rank, size_);
  else if (std::any_of(peers_.begin(), peers_.end(), [&](auto& p) { return p.rank == rank; }))
    why = fmt::format("two processes are rank {}", rank);
  if (!why.empty()) {
    send_all(peer.socket, encode({'R', "", why}));
    return peer.socket.close();
  }
  peer.rank = rank;
  if (lost_) send_all(peer.socket, encode({'L', std::to_string(*lost_), ""}));
  if (joined() < size_) return;
  complete_ = true;
  tell_all({'A', "", ""});
}

void ControlServer::give_up_joining() {
  std::set<int> missing;
  for (int r = 0; r < size_; ++r) missing.insert(r);
  for (auto& p : peers_) missing.erase(p.rank);
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
  lost_ = peer.rank;
  tell_all({'L', std::to_string(*lost_), ""});
}

void ControlServer::answer_blame() {
  if (!first_failure_ || lost_) return;
  int blamed = -1;
  bool complain = false;
  for (auto& p : peers_) {
    if (p.rank < 0 || p.failed) continue;
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
  return int(std::count_if(peers_.begin(), peers_.end(), [](auto& p) { return p.rank >= 0; }));
}

bool ControlServer::all_left() const {
  return std::all_of(peers_.begin(), peers_.end(), [](auto& p) { return p.rank < 0 || p.left; });
}

}  // namespace crest
