#include "comm/environment.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

struct Names {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};

// In this order, because a launcher inside another's allocation also sets its own variables.
constexpr Names known[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

constexpr int default_port = 29500;  // torchrun's
constexpr int most_ranks = 4096;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::string text(const char* name) const {
    const char* value = variables_ ? variables_(name) : std::getenv(name);
    return value ? value : "";
  }
  int number(const char* name, int low, int high, std::optional<int> otherwise = {}) const {
    std::string value = text(name);
    if (value.empty()) {
      if (otherwise) return *otherwise;
      fail_usage(fmt::format("{} is not set", name), "environment",
                 "Launchers set rank and number of ranks together. Unset both to run without a launcher.");
    }
    int n = 0;
    auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (code != std::errc() || end != value.data() + value.size() || n < low || n > high)
      fail_usage(fmt::format("{}={} is not a number from {} to {}", name, printable(value), low, high), "environment",
                 "The program that starts the ranks sets it (torchrun, mpirun, srun).");
    return n;
  }

 private:
  const Variables& variables_;
};

// srun without MPI sets its variables in every step, even for a single process of a batch script.
bool is_set(const Reader& read, const Names& names) {
  if (std::strcmp(names.launcher, "srun") == 0)
    return !read.text("SLURM_PROCID").empty() && !read.text("SLURM_STEP_ID").empty() &&
           read.text("SLURM_NTASKS") != "1";
  return !read.text(names.rank).empty() || !read.text(names.size).empty();
}

// Tasks on this node, from "2(x3),1": two on each of three nodes, one on the next. 0: not set.
int slurm_tasks_here(const Reader& read) {
  std::string text = read.text("SLURM_STEP_TASKS_PER_NODE");
  if (text.empty()) return 0;
  int node = read.number("SLURM_NODEID", 0, most_ranks, 0);
  for (auto& item : split(text, ',')) {
    int tasks = 0, times = 1;
    if (std::sscanf(item.c_str(), "%d(x%d)", &tasks, &times) < 1 || tasks < 1 || times < 1) break;
    if (node < times) return tasks;
    node -= times;
  }
  fail_usage(fmt::format("SLURM_STEP_TASKS_PER_NODE={} has no task for node {}", printable(text),
                         read.number("SLURM_NODEID", 0, most_ranks, 0)),
             "environment", "srun sets both.");
}

// The first host of a list: "node[003-007,12],login" starts with node003. Rank 0 runs there.
std::string first_slurm_host(const std::string& list) {
  size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  size_t end = list.find_first_of("-,]", bracket), close = list.find(']', bracket);
  if (close == std::string::npos) return "";
  size_t next = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
}

RankEnvironment read_environment_of(const Reader& read, const Names& names) {
  RankEnvironment e;
  e.launcher = names.launcher;
  e.size = read.number(names.size, 1, most_ranks);
  e.rank = read.number(names.rank, 0, e.size - 1);
  e.local_rank = read.number(names.local_rank, 0, e.size - 1, e.rank);
  bool slurm = e.launcher == "srun";
  int here = slurm ? slurm_tasks_here(read) : 0;
  e.local_size = std::min(e.size, here ? here : read.number(names.local_size, 1, most_ranks, e.size));
  e.port = read.number("MASTER_PORT", 1, 65535, default_port);
  // torchrun's agent needs MASTER_PORT for its own store, so rank 0 takes the next port.
  if (read.text("TORCHELASTIC_USE_AGENT_STORE") == "True") e.port = e.port == 65535 ? 65534 : e.port + 1;
  if (std::string address = read.text("MASTER_ADDR"); !address.empty())
    e.address = address;
  else if (std::string host = slurm ? first_slurm_host(read.text("SLURM_STEP_NODELIST")) : "";
           !host.empty() && e.local_size < e.size)
    e.address = host;
  else if (e.local_size < e.size)
    fail_usage(fmt::format("{} of {} ranks are on this host, but MASTER_ADDR is not set", e.local_size, e.size),
               "environment", "Set MASTER_ADDR to the host of rank 0 for all ranks.");
  return e;
}

}  // namespace

std::optional<RankEnvironment> rank_environment(const Variables& variables) {
  Reader read(variables);
  for (auto& names : known)
    if (is_set(read, names)) return read_environment_of(read, names);
  return std::nullopt;
}

int inherited_descriptor(const char* variable) {
  const char* text = std::getenv(variable);
  int fd = text ? std::atoi(text) : -1;
  return fd > 2 && fcntl(fd, F_GETFD) >= 0 ? fd : -1;
}

}  // namespace crest
