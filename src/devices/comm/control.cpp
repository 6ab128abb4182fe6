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

// Of an exchange: a rank may wait for another that saves a checkpoint. Lost ranks end it.
static constexpr double no_limit = 1e6;

PeerLost lost_rank(int rank, const std::string& why, const std::string& where) {
  if (why.empty()) return {rank, fmt::format("rank {} is gone", rank), where, "Look for its own error message."};
  return {rank, why, where, "It was stopped, or its machine or network failed."};
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
      if (frame.type != 'C') return Greeting::forged;
      if (!same_digest(frame.value, proof(own.secret, "server", nonce, frame.key))) return Greeting::forged;
      if (!send_all(socket, encode({'J', "", proof(own.secret, self, nonce, frame.key)}))) return Greeting::closed;
      if (own.kind != Introduction::watchdog) return Greeting::done;
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

Greeting connect_and_introduce(const RankEnvironment& to, const Introduction& own, Clock::time_point deadline,
                               Socket& socket, FrameReader& reader, Frame& refusal) {
  for (;;) {
    reader = FrameReader();
    socket = connect_to(to.address, to.port, deadline);
    if (!socket.is_open()) return Greeting::late;
    Greeting greeting = introduce(socket, reader, own, deadline, refusal);
    if (greeting != Greeting::closed || Clock::now() >= deadline) return greeting;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::unique_ptr<Control> Control::join(const RankEnvironment& environment, double seconds, Socket listener,
                                       const ControlOptions& options) {
  return std::unique_ptr<Control>(new Control(environment, seconds, std::move(listener), options));
}

Control::Control(const RankEnvironment& environment, double seconds, Socket listener, const ControlOptions& options)
    : environment_(environment), secret_(options.secret) {
  StopSignal::watch_output();
  if (rank() == 0) {
    if (!listener.is_open()) listener = listen_on(environment_.address, environment_.port);
    environment_.port = port_of(listener);
    server_ = std::make_unique<ControlServer>(std::move(listener), size(), seconds, options);
  }
  greet(seconds);
}

void Control::greet(double seconds) {
  std::string where = fmt::format("{}:{}", environment_.address, environment_.port);
  auto deadline = after(seconds + 1);  // the server knows who is missing, so it times out first
  socket_ = connect_to(environment_.address, environment_.port, after(seconds));
  if (!socket_.is_open())
    throw PeerLost(0, fmt::format("rank 0 did not start within {:g} s: no process is listening", seconds),
                   printable(where), "Start all ranks with the same MASTER_ADDR and MASTER_PORT.");
  Frame answer;
  while (!answered(answer, deadline)) {
    // Closed before it answered. Either rank 0 is gone and nobody listens any more; or this process
    // was stopped for a while, or many others connected at once, and rank 0 took it for a silent
    // stranger.
    bool closed = lost_ && !reported_;
    if (closed && Clock::now() < deadline)
      if (socket_ = connect_to(environment_.address, environment_.port, after(0.2)); socket_.is_open()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        lost_.reset();
        reader_ = FrameReader();
        continue;
      }
    if (lost_) throw_lost("start");
    fail("the process listening there is not rank 0", printable(where), "Choose another MASTER_PORT.");
  }
  address_ = own_address(socket_);
  if (answer.type == 'R')
    throw PeerLost(-1, answer.value, printable(where),
                   "All ranks need the same WORLD_SIZE and different values of RANK.");
}

bool Control::answered(Frame& answer, Clock::time_point deadline) {
  switch (introduce(socket_, reader_, {rank(), size(), Introduction::rank_itself, secret_}, deadline, answer)) {
    case Greeting::refused: return true;
    case Greeting::closed: lost_ = 0; return false;
    case Greeting::late: return false;
    case Greeting::forged:
      fail_usage("rank 0 does not know the secret of this rank", "CREST_SECRET",
                 "Export the same CREST_SECRET for all ranks, or unset it for all ranks of one machine.");
    case Greeting::done: break;
  }
  return wait_for("AR", answer, deadline);
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

std::string Control::exchange(const std::string& own) {
  send({'X', "", own});
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
