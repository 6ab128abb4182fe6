#include "comm/secret.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "comm/socket.h"
#include "core/error.h"
#include "core/hmac.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr size_t shortest = 16;

std::string inherited() {
  const char* text = std::getenv(secret_descriptor_variable);
  int fd = text ? std::atoi(text) : -1;
  if (fd <= 2 || fcntl(fd, F_GETFD) < 0) return "";
  char bytes[256];
  ssize_t n = pread(fd, bytes, sizeof bytes, 0);  // all ranks share its position
  close(fd);
  unsetenv(secret_descriptor_variable);
  if (n < ssize_t(shortest)) fail("the secret of the launcher cannot be read", secret_descriptor_variable);
  return {bytes, size_t(n)};
}

}  // namespace

std::string proof(const std::string& secret, const std::string& who, const std::string& client_number,
                  const std::string& server_number) {
  return to_hex(hmac_sha256(secret, fmt::format("crest-control {} {} {}", who, client_number, server_number)));
}

int make_inherited_secret() {
  int fd = memfd_create("crest-secret", MFD_CLOEXEC);
  std::string secret = random_hex(32);
  if (fd < 0 || write(fd, secret.data(), secret.size()) != ssize_t(secret.size()))
    fail(fmt::format("no memory for the secret of the ranks: {}", std::strerror(errno)), "launch");
  return fd;
}

std::string rank_secret(const RankEnvironment& environment) {
  if (std::string secret = inherited(); !secret.empty()) return secret;
  const char* set = std::getenv("CREST_SECRET");
  std::string secret = set ? set : "";
  if (!secret.empty() && secret.size() < shortest)
    fail_usage(fmt::format("CREST_SECRET has {} characters", secret.size()), "environment",
               fmt::format("It needs at least {}: export CREST_SECRET=$(openssl rand -hex 32)", shortest));
  if (secret.empty() && !is_loopback(environment.address))
    fail_usage(
        fmt::format("other machines can reach rank 0 at {}, and no secret is set", printable(environment.address)),
        "CREST_SECRET", "Make one, and set it for all ranks: export CREST_SECRET=$(openssl rand -hex 32)");
  return secret;
}

}  // namespace crest
