// The rank of this process, from the variables of its launcher: torchrun and `crest --nproc` (RANK,
// WORLD_SIZE, ..), mpirun (OMPI_COMM_WORLD_*, PMI_*) or srun (SLURM_PROCID, ..).
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace crest {

struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  std::string address = "127.0.0.1";   // host of rank 0
  int port = 0;                        // rank 0's port
  std::string launcher;                // "torchrun", "mpirun", "srun"
};

using Variables = std::function<const char*(const char*)>;  // std::getenv, or a test's

// Empty without a launcher's variables: a single process. If variables contradict each other or are
// not numbers, throws a usage error naming one.
std::optional<RankEnvironment> rank_environment(const Variables& variables = {});

// The descriptor named by a variable and left open by a launcher for this process; -1: none.
int inherited_descriptor(const char* variable);

}  // namespace crest
