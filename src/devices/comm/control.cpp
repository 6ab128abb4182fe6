#include "comm/control.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "comm/control_server.h"
#include "comm/secret.h"
#include "core/hmac.h"
#include "core/text.h"
#include "host/stop_signal.h"

namespace crest {

// Time limit of an exchange. It is long, since another rank may be saving a checkpoint. A lost or
// hanging rank ends it earlier.
static constexpr double no_limit = 1e6;

static PeerLost silent_first(double seconds, const std::string& where) {
  return {0, fmt::format("rank 0 has not answered for {:g} s", seconds), where,
          "It was stopped, or another program listens there: then choose another MASTER_PORT."};
}

PeerLost lost_rank(int rank, const std::string& why, const std::string& where) {
  if (why.empty()) return {rank, fmt::format("rank {} is gone", rank), where, "Look for its own error message."};
  size_t end = why.find('\0');
  return {rank, why.substr(0, end), where,
          end == std::string::npos ? "It was stopped, or its machine or network failed." : why.substr(end + 1)};
}

Greeting introduce(const Socket& socket, FrameReader& reader, const Introduction& own, Clock::time_point deadline,
                   Frame& refusal) {
  std::string nonce = random_hex(16);
  std::string self = fmt::format("{} {} {}", own.rank, own.size, char(own.kind));
  bool proved = false;
  if (!send_all(socket, encode({'H', self, fmt::format("{} {}", control_magic, nonce)}))) return Greeting::closed;
  for (Frame frame;;) {
    if (reader.next(frame)) {
      if (frame.type == 'R') return refusal = frame, Greeting::refused;
      if (proved) return Greeting::done;  // the server's first word
      if (frame.type != 'C') return Greeting::closed;
      if (!same_digest(frame.value, proof(own.secret, "server", nonce, frame.key))) {
        send_all(socket, encode({'N', "", ""}));  // so rank 0 can say why this rank is missing
        return Greeting::forged;
      }
      if (!send_all(socket, encode({'J', "", proof(own.secret, self, nonce, frame.key)}))) return Greeting::closed;
      proved = true;
      continue;
    }
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p = {socket.fd(), POLLIN, 0};
    int ready = poll(&p, 1, int(std::clamp<int64_t>(left, 0, 1000)));
    if (ready == 0 && left <= 0) return Greeting::late;
    if (ready > 0 && !reader.receive(socket)) return Greeting::closed;
  }
}

void join_server(const RankEnvironment& to, const Introduction& own, double seconds, Socket& socket,
                 FrameReader& reader) {
  const std::string where = printable(fmt::format("{}:{}", to.address, to.port));
  const auto deadline = after(seconds);
  Frame refusal;
  for (bool met = false;; met = true) {
    reader = FrameReader();
    auto [connected, problem] = connect_to(to.address, to.port, met ? std::min(deadline, after(0.2)) : deadline);
    socket = std::move(connected);
    if (!socket.is_open() && met) throw lost_rank(0, "", "start");
    if (!socket.is_open())
      throw PeerLost(0, fmt::format("rank 0 did not start within {:g} s: {}", seconds, problem), where,
                     "Start all ranks with the same MASTER_ADDR and MASTER_PORT.");
    switch (introduce(socket, reader, own, deadline, refusal)) {
      case Greeting::done: return;
      case Greeting::refused:
        throw PeerLost(-1, refusal.value, where, "All ranks need the same WORLD_SIZE and different values of RANK.");
      case Greeting::forged:
        fail_usage("rank 0 does not know the secret of this rank", "CREST_SECRET",
                   "Export the same CREST_SECRET for all ranks, or unset it for all ranks of one machine.");
      case Greeting::late: throw silent_first(seconds, where);
      case Greeting::closed: break;
    }
    if (Clock::now() >= deadline)
      fail("the process listening there is not rank 0", where, "Choose another MASTER_PORT.");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::unique_ptr<Control> Control::join(const RankEnvironment& environment, double seconds, Socket listener,
                                       const ControlOptions& options) {
  return std::unique_ptr<Control>(new Control(environment, seconds, std::move(listener), options));
}

Control::Control(const RankEnvironment& environment, double seconds, Socket listener, const ControlOptions& options)
    : environment_(environment), secret_(options.secret), activity_(options.activity) {
  StopSignal::watch_output();
  if (rank() == 0) {
    if (!listener.is_open()) listener = listen_on(environment_.address, environment_.port);
    environment_.port = port_of(listener);
    server_ = std::make_unique<ControlServer>(std::move(listener), size(), seconds, options);
  }
  if (options.guard) options.guard(environment_);
  join_all(seconds);
}

void Control::join_all(double seconds) {
  const auto deadline = after(seconds + 1);  // the server knows the missing ranks, so it times out first
  join_server(environment_, {rank(), size(), Introduction::rank_itself, secret_}, seconds, socket_, reader_);
  address_ = own_address(socket_);
  Frame answer;
  const bool answered = wait_for("AR", answer, deadline);
  if (!answered && lost_) throw_lost("start");
  if (!answered) throw silent_first(seconds, "start");
  if (answer.type == 'R')
    throw PeerLost(std::atoi(answer.key.c_str()), answer.value, "start",
                   "It was stopped, or never started: look for its own error message.");
}

Control::~Control() {
  // Without a goodbye, the others know that this rank has failed.
  if (!lost_ && std::uncaught_exceptions() == 0) send_all(socket_, encode({'E', "", ""}));
  socket_.close();
}

void Control::send(const Frame& frame) {
  if (!send_all(socket_, encode(frame)) && !lost_) lost_ = 0;
}

void Control::take(const Frame& frame) {
  if (frame.type == 'L' && !lost_) lost_ = std::atoi(frame.key.c_str()), why_lost_ = frame.value, reported_ = true;
}

bool Control::wait_for(const char* types, Frame& frame, Clock::time_point deadline) {
  for (;;) {
    while (reader_.next(frame)) {
      if (std::strchr(types, frame.type)) return true;
      take(frame);
    }
    if (lost_) return false;
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p = {socket_.fd(), POLLIN, 0};
    int ready = poll(&p, 1, int(std::clamp<int64_t>(left, 0, 1000)));
    if (ready == 0 && left <= 0) return false;
    if (ready > 0 && !reader_.receive(socket_)) lost_ = 0;  // the server is rank 0
  }
}

void Control::set(const std::string& key, const std::string& value) { send({'S', key, value}); }

std::string Control::get(const std::string& key, double seconds) {
  send({'G', key, ""});
  Frame answer;
  if (wait_for("V", answer, after(seconds))) return answer.value;
  if (lost_) throw_lost("start");
  blame(fmt::format("'{}' did not arrive within {:g} s", printable(key), seconds), "start");
}

std::string Control::exchange(const CollectiveCall& call, const std::string& own, const std::vector<int>& among) {
  Activity::InCollective waits(*activity_, call);
  send({'X', fmt::format("{}\n{}", fmt::join(among, ","), call.text()), own});
  Frame answer;
  if (!wait_for("V", answer, after(no_limit))) throw_lost("exchange");
  return answer.value;
}

void Control::check(const std::string& where) {
  Frame none;
  wait_for("", none, Clock::now());
  if (lost_) throw_lost(where);
}

void Control::throw_lost(const std::string& where) const { throw lost_rank(*lost_, why_lost_, where); }

void Control::blame(const std::string& problem, const std::string& where) {
  send({'F', "", ""});
  Frame answer;
  if (!wait_for("B", answer, after(blame_seconds + 2)) && !lost_) lost_ = 0;
  if (lost_) throw_lost(where);
  int silent = std::atoi(answer.key.c_str());
  if (silent < 0) fail(problem, where, "All ranks failed in the same way. Check the network.");
  throw PeerLost(silent, fmt::format("rank {} does not take part ({})", silent, problem), where,
                 "It hangs, was stopped, or is slower than --timeout allows.");
}

}  // namespace crest
