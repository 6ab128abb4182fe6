// Runs of several processes: their numbers, ports and errors.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>

#include "cli/train_harness.h"
#include "comm/gloo.h"
#include "comm/loopback.h"
#include "core/sha256.h"

#define NEEDS_RANKS()                                                        \
  if (!crest::gloo_problem().empty()) GTEST_SKIP() << crest::gloo_problem(); \
  NEEDS_LOOPBACK()

namespace crest::test {

inline std::string weights_and_moments(const TrainFolder& f, const std::string& run, const std::string& checkpoint) {
  std::string folder = run + "/checkpoints/" + checkpoint + "/";
  std::string bytes = f.read(folder + "model.safetensors") + f.read(folder + "optimizer.safetensors");
  EXPECT_GT(bytes.size(), 1000u) << folder;
  return sha256_hex(bytes.data(), bytes.size());
}

inline std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<pid_t> children;
  for (pid_t child; in >> child;) children.push_back(child);
  std::sort(children.begin(), children.end());
  return children;
}

inline bool alive(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  size_t end = text.rfind(')');
  return end != std::string::npos && text[end + 2] != 'Z';
}

inline bool is_bound(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in a{};
  a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK), a.sin_port = htons(uint16_t(port));
  bool free = bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  close(fd);
  return !free;
}

inline int port_in_environment_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string variable; std::getline(in, variable, '\0');)
    if (variable.starts_with("MASTER_PORT=")) return std::stoi(variable.substr(12));
  return 0;
}

// From the first error on: a run's description at its start names steps, too.
inline std::string error_of(const RunResult& r) {
  size_t at = r.err.find("crest: error: ");
  return at == std::string::npos ? "" : r.err.substr(at);
}

inline void expect_one_error(const RunResult& r) {
  EXPECT_NE(r.err.find("crest: error: "), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("crest: error: "), r.err.rfind("crest: error: ")) << "more than one error\n" << r.err;
}

inline std::string free_port() {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  socklen_t n = sizeof a;
  a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), n), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n);
  close(fd);
  return std::to_string(ntohs(a.sin_port));
}

inline std::vector<std::pair<std::string, std::string>> rank_variables(int rank, const std::string& port) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", "2"},      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
}

// After the end of a run: none of its processes, and nobody listens on rank 0's port.
inline void expect_nothing_left(const std::vector<pid_t>& ranks, int port) {
  wait_until([&] { return std::none_of(ranks.begin(), ranks.end(), alive); }, 30);
  for (pid_t rank : ranks) EXPECT_FALSE(alive(rank)) << rank;
  wait_until([&] { return !is_bound(port); }, 30);
  EXPECT_FALSE(is_bound(port)) << "the port is still in use";
}

}  // namespace crest::test
