#include "comm/secret.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "comm/socket.h"
#include "core/error.h"
#include "core/hmac.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr size_t shortest = 16;

std::string inherited() {
  int fd = inherited_descriptor(secret_descriptor_variable);
  if (fd < 0) return "";
  char bytes[256];
  ssize_t n = pread(fd, bytes, sizeof bytes, 0);  // pread, since all ranks share the file position
  close(fd);
  unsetenv(secret_descriptor_variable);
  if (n < ssize_t(shortest)) fail("the secret of the launcher cannot be read", secret_descriptor_variable);
  return {bytes, size_t(n)};
}

// If others could read or write the file, its content is no secret.
void check_file(const struct stat& file, const std::string& path) {
  if (!S_ISREG(file.st_mode)) fail_usage("the secret's file is not a regular file", printable(path), "Remove it.");
  if (file.st_uid != geteuid())
    fail_usage(fmt::format("the secret's file belongs to user {}, not to {}", file.st_uid, geteuid()), printable(path),
               "Choose a file in a folder of your own as CREST_SECRET_FILE.");
  if (file.st_mode & 077)
    fail_usage(fmt::format("others can read or write the secret's file: its mode is {:04o}", file.st_mode & 07777),
               printable(path), "Remove it; rank 0 writes it with mode 0600.");
}

// "": it does not exist (yet).
std::string read_secret(const std::string& path) {
  Socket file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open() && (errno == ENOENT || errno == ESTALE)) return "";
  struct stat found {};
  if (!file.is_open() || fstat(file.fd(), &found) != 0)
    fail_usage(fmt::format("the secret's file cannot be read: {}", std::strerror(errno)), printable(path));
  check_file(found, path);
  char bytes[256];
  ssize_t n = pread(file.fd(), bytes, sizeof bytes, 0);
  if (n < ssize_t(shortest)) fail_usage("the secret's file holds no secret", printable(path), "Remove it.");
  return {bytes, size_t(n)};
}

// Replaces the file of an earlier run. The new file gets its name only when complete.
Socket write_secret(const std::string& path, const std::string& secret) {
  struct stat left {};
  if (lstat(path.c_str(), &left) == 0) check_file(left, path);
  std::string temporary = fmt::format("{}.{}", path, getpid());
  unlink(temporary.c_str());
  Socket file(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  bool done = file.is_open() && fchmod(file.fd(), 0600) == 0 &&
              write(file.fd(), secret.data(), secret.size()) == ssize_t(secret.size()) && fsync(file.fd()) == 0 &&
              rename(temporary.c_str(), path.c_str()) == 0;
  if (done) return file;
  std::string why = std::strerror(errno);
  unlink(temporary.c_str());
  fail(fmt::format("the secret's file cannot be written: {}", why), printable(path),
       "CREST_SECRET_FILE names a new file in a folder that all machines share.");
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

RankSecret::RankSecret(const RankEnvironment& environment, Clock::time_point deadline) {
  if (text_ = inherited(); !text_.empty()) return;
  if (const char* set = std::getenv("CREST_SECRET")) text_ = set;
  if (!text_.empty() && text_.size() < shortest)
    fail_usage(fmt::format("CREST_SECRET has {} characters", text_.size()), "environment",
               fmt::format("It needs at least {}: export CREST_SECRET=$(openssl rand -hex 32)", shortest));
  if (!text_.empty()) return;
  if (const char* set = std::getenv("CREST_SECRET_FILE")) file_ = set;
  if (!file_.empty() && environment.rank == 0) {
    text_ = random_hex(32);
    written_ = write_secret(file_, text_);
  } else if (!file_.empty()) {
    wait_for_another(deadline);
    if (text_.empty())
      fail("rank 0 has not written the secret", printable(file_),
           "CREST_SECRET_FILE must name the same file for all ranks, on a file system that their machines share.");
  }
  if (text_.empty() && !is_loopback(environment.address))
    fail_usage(
        fmt::format("other machines can reach rank 0 at {}, and no secret is set", printable(environment.address)),
        "CREST_SECRET",
        "Make one, and set it for all ranks: export CREST_SECRET=$(openssl rand -hex 32). Or name a file that all "
        "machines share: export CREST_SECRET_FILE=$HOME/crest-secret");
}

bool RankSecret::wait_for_another(Clock::time_point deadline) {
  if (file_.empty() || written_.is_open()) return false;
  for (;;) {
    std::string now = read_secret(file_);
    if (!now.empty() && now != text_) return text_ = now, true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void RankSecret::remove_file() {
  struct stat mine {
  }, there{};
  bool same = written_.is_open() && fstat(written_.fd(), &mine) == 0 && lstat(file_.c_str(), &there) == 0 &&
              mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  if (same) unlink(file_.c_str());
}

}  // namespace crest
