// Which rank this process is, as the program that started it says: torchrun and `crest --nproc` (RANK, WORLD_SIZE, ..),
// mpirun (OMPI_COMM_WORLD_*, PMI_*) or srun (SLURM_PROCID, ..).
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace crest {

struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // of the ranks of this host
  std::string address = "127.0.0.1";   // of rank 0's host
  int port = 0;                        // that rank 0 listens on
  std::string launcher;                // "torchrun", "mpirun", "srun"
};

using Variables = std::function<const char*(const char*)>;  // std::getenv, or what a test says

// Empty: no launcher's variables, this is a process of its own. Throws a usage error that names the variable when they
// contradict each other or are no numbers.
std::optional<RankEnvironment> rank_environment(const Variables& variables = {});

}  // namespace crest
