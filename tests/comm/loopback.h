// The network needed by tests of ranks: the loopback interface, and nothing else.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace crest::test {

// Why 127.0.0.1 cannot be reached; empty: it can.
inline const std::string& loopback_problem() {
  static const std::string problem = [] {
    int listener = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    socklen_t n = sizeof a;
    a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&a);
    bool well = bind(listener, address, n) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, address, &n) == 0 && connect(other, address, n) == 0;
    std::string why = well ? "" : std::string("needs 127.0.0.1 (ip link set lo up): ") + std::strerror(errno);
    close(listener), close(other);
    return why;
  }();
  return problem;
}

}  // namespace crest::test

#define NEEDS_LOOPBACK() \
  if (!crest::test::loopback_problem().empty()) GTEST_SKIP() << crest::test::loopback_problem()
