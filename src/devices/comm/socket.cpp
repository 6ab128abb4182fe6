#include "comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr size_t largest_frame = 1 << 20;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (int code = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0)
    fail(fmt::format("the address '{}' cannot be resolved: {}", printable(address), gai_strerror(code)), "MASTER_ADDR",
         "Set MASTER_ADDR to the host of rank 0.");
  return {found, freeaddrinfo};
}

Socket new_socket(const addrinfo& a) {
  return Socket(socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC, a.ai_protocol));
}

// For one address, so the next one gets its turn if packets to the first vanish.
constexpr double longest_attempt = 3;  // seconds

// 0, or an error number. connect() alone would wait minutes for a silent address.
int connect_until(const Socket& s, const addrinfo& a, Clock::time_point deadline) {
  const int flags = fcntl(s.fd(), F_GETFL);
  fcntl(s.fd(), F_SETFL, flags | O_NONBLOCK);
  int code = connect(s.fd(), a.ai_addr, a.ai_addrlen) == 0 ? 0 : errno;
  while (code == EINPROGRESS || code == EINTR) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd done{s.fd(), POLLOUT, 0};
    const int ready = poll(&done, 1, int(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return ETIMEDOUT;
    socklen_t size = sizeof code;
    if (getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  }
  fcntl(s.fd(), F_SETFL, flags);
  return code;
}

uint32_t number_at(const std::string& text, size_t at) {
  uint32_t n = 0;
  std::memcpy(&n, text.data() + at, sizeof n);
  return n;
}

std::string bytes_of(size_t n) {
  auto value = uint32_t(n);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}
int Socket::release() { return std::exchange(fd_, -1); }
void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Socket listen_on(const std::string& address, int port) {
  Addresses found = resolve(address, port);
  int code = EADDRNOTAVAIL;
  for (addrinfo* a = found.get(); a; a = a->ai_next) {
    Socket s = new_socket(*a);
    int on = 1;
    setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s.is_open() && bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), SOMAXCONN) == 0) return s;
    code = errno;
  }
  const char* advice = code == EADDRINUSE
                           ? "Another program is listening there: choose another port (MASTER_PORT, --port)."
                           : "MASTER_ADDR must be an address of rank 0's host.";
  fail(fmt::format("cannot listen on port {}: {}", port, std::strerror(code)), printable(address), advice);
}

int port_of(const Socket& socket) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&a), &n) != 0) return 0;
  return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(a).sin_port);
}

std::string own_address(const Socket& socket) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  char text[NI_MAXHOST] = "";
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&a), &n) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&a), n, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    fail(fmt::format("own address: {}", std::strerror(errno)), "socket");
  return text;
}

Connected connect_to(const std::string& address, int port, Clock::time_point deadline) {
  Addresses found = resolve(address, port);
  for (;;) {
    int code = 0;
    for (addrinfo* a = found.get(); a; a = a->ai_next) {
      Socket s = new_socket(*a);
      code = s.is_open() ? connect_until(s, *a, std::min(deadline, after(longest_attempt))) : errno;
      if (code != 0) continue;
      int on = 1;
      setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return {std::move(s), ""};
    }
    if (Clock::now() >= deadline)
      return {Socket(), code == ECONNREFUSED ? "no process is listening"
                        : code == ETIMEDOUT  ? "nobody answers there"
                                             : std::strerror(code)};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool is_loopback(const std::string& address) {
  Addresses found = resolve(address, 0);
  for (addrinfo* a = found.get(); a; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      auto* v4 = reinterpret_cast<const sockaddr_in*>(a->ai_addr);
      if (ntohl(v4->sin_addr.s_addr) >> 24 != 127) return false;
    } else {
      auto* v6 = reinterpret_cast<const sockaddr_in6*>(a->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) return false;
    }
  }
  return true;
}

bool send_all(const Socket& socket, const std::string& data) {
  for (size_t done = 0; done < data.size();) {
    ssize_t n = send(socket.fd(), data.data() + done, data.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

std::string encode(const Frame& f) {
  return bytes_of(1 + 4 + f.key.size() + f.value.size()) + f.type + bytes_of(f.key.size()) + f.key + f.value;
}

bool FrameReader::receive(const Socket& socket) {
  char chunk[65536];
  ssize_t n = recv(socket.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (n == 0) return false;
  buffer_.append(chunk, size_t(n));
  if (buffer_.size() < 4) return true;
  uint32_t length = number_at(buffer_, 0);
  return length >= 5 && length <= largest_frame;
}

bool FrameReader::next(Frame& f) {
  if (buffer_.size() < 9) return false;
  size_t length = number_at(buffer_, 0), key = number_at(buffer_, 5);
  if (buffer_.size() < 4 + length) return false;
  if (length < 5 || key > length - 5) return false;
  f.type = buffer_[4];
  f.key = buffer_.substr(9, key);
  f.value = buffer_.substr(9 + key, length - 5 - key);
  buffer_.erase(0, 4 + length);
  return true;
}

}  // namespace crest
