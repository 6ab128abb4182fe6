// Launchers' variables.
#include "comm/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace crest::test {

namespace {

using Set = std::map<std::string, std::string>;

std::optional<RankEnvironment> read(const Set& set) {
  return rank_environment([&](const char* name) -> const char* {
    auto it = set.find(name);
    return it == set.end() ? nullptr : it->second.c_str();
  });
}

std::string environment_error(const Set& set) {
  try {
    read(set);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(RankEnvironment, WithoutALauncherThereIsNone) { EXPECT_FALSE(read({})); }

TEST(RankEnvironment, ReadsTorchrun) {
  auto e = read({{"RANK", "3"},
                 {"WORLD_SIZE", "4"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "10.0.0.1"},
                 {"MASTER_PORT", "1234"}});
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank, 3);
  EXPECT_EQ(e->size, 4);
  EXPECT_EQ(e->local_rank, 1);
  EXPECT_EQ(e->local_size, 2);
  EXPECT_EQ(e->address, "10.0.0.1");
  EXPECT_EQ(e->port, 1234);
  EXPECT_EQ(e->launcher, "torchrun");
}

TEST(RankEnvironment, TheAgentOfTorchrunKeepsItsPort) {
  auto e =
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(e->port, 1235);
}

TEST(RankEnvironment, ReadsMpirunAndSrun) {
  auto mpi = read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(mpi->launcher, "mpirun");
  EXPECT_EQ(mpi->rank, 1);
  EXPECT_EQ(mpi->port, 29500);
  EXPECT_EQ(mpi->address, "127.0.0.1");
  auto slurm = read({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "2"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(slurm->launcher, "srun");
  EXPECT_EQ(slurm->local_rank, 2);
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));  // a batch script, no step
}

// Without --ntasks-per-node, srun still says where the tasks are.
TEST(RankEnvironment, SrunOnSeveralNodesNeedsNothingElse) {
  Set set = {{"SLURM_PROCID", "3"},
             {"SLURM_NTASKS", "5"},
             {"SLURM_LOCALID", "1"},
             {"SLURM_STEP_ID", "0"},
             {"SLURM_NODEID", "1"},
             {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
             {"SLURM_STEP_NODELIST", "node[03-04,7]"}};
  auto e = read(set);
  EXPECT_EQ(e->local_size, 2);
  EXPECT_EQ(e->local_rank, 1);
  EXPECT_EQ(e->address, "node03");
  set["SLURM_NODEID"] = "2", set["SLURM_PROCID"] = "4", set["SLURM_LOCALID"] = "0";
  EXPECT_EQ(read(set)->local_size, 1);
  for (auto& [list, first] : std::map<std::string, std::string>{
           {"alpha,beta", "alpha"}, {"n[1,3-4]-ib,x", "n1-ib"}, {"x,n[1-2]", "x"}, {"single", "single"}}) {
    set["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(read(set)->address, first) << list;
  }
  set["MASTER_ADDR"] = "10.0.0.9";
  EXPECT_EQ(read(set)->address, "10.0.0.9") << "whoever sets it knows better";
  set["SLURM_NODEID"] = "3";
  EXPECT_NE(environment_error(set).find("SLURM_STEP_TASKS_PER_NODE"), std::string::npos);
}

TEST(RankEnvironment, SrunOnOneNodeUsesItsLoopback) {
  auto e = read({{"SLURM_PROCID", "1"},
                 {"SLURM_NTASKS", "2"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_NODEID", "0"},
                 {"SLURM_STEP_TASKS_PER_NODE", "2"},
                 {"SLURM_STEP_NODELIST", "node03"}});
  EXPECT_EQ(e->address, "127.0.0.1");
  EXPECT_EQ(e->local_size, 2);
}

TEST(RankEnvironment, WrongVariablesAreNamed) {
  EXPECT_NE(environment_error({{"RANK", "0"}}).find("WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(environment_error({{"WORLD_SIZE", "2"}}).find("RANK is not set"), std::string::npos);
  EXPECT_NE(environment_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("RANK=2 is not a number from 0 to 1"),
            std::string::npos);
  EXPECT_NE(environment_error({{"RANK", "one"}, {"WORLD_SIZE", "2"}}).find("RANK=one"), std::string::npos);
  EXPECT_NE(environment_error({{"RANK", "0"}, {"WORLD_SIZE", "-2"}}).find("WORLD_SIZE=-2"), std::string::npos);
  EXPECT_NE(environment_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}).find("MASTER_PORT=99999"),
            std::string::npos);
  EXPECT_NE(environment_error({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}).find("MASTER_ADDR"),
            std::string::npos);
}

}  // namespace crest::test
