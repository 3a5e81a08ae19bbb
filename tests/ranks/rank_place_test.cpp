#include "ranks/rank_place.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Variables = std::map<std::string, std::string>;

Result<RankPlace> place_of(const RankFlags& flags, const Variables& variables) {
  return find_rank_place(flags, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const RankFlags& flags, const Variables& variables) {
  const auto place = place_of(flags, variables);
  return place ? "none" : place.error().message;
}

TEST(RankPlace, one_rank_asks_no_other) {
  const RankPlace place = place_of({}, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}).value();
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world_size, 1);
  EXPECT_FALSE(place.starts_others);
}

TEST(RankPlace, rank_0_starts_the_others_if_no_launcher_does) {
  for (const Variables& variables : {Variables{}, Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}}) {
    const RankPlace place = place_of({.tensor_parallel_size = 4}, variables).value();
    EXPECT_EQ(place.rank, 0);
    EXPECT_EQ(place.world_size, 4);
    EXPECT_TRUE(place.starts_others);
    EXPECT_EQ(place.master_port, 0);
  }
}

struct LauncherCase {
  const char* name;
  Variables variables;
  int rank;
  int local_rank;
  std::string addr;
  int port;
};

TEST(RankPlace, each_launcher_names_the_rank) {
  const std::vector<LauncherCase> cases = {
      {"torchrun",
       {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29400"}},
       3,
       1,
       "node-0",
       29400},
      {"torchrun, which listens at the port itself",
       {{"RANK", "1"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"MASTER_PORT", "29400"}},
       1,
       1,
       "127.0.0.1",
       29401},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
       2,
       0,
       "127.0.0.1",
       29500},
      {"MPICH", {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}, 1, 1, "127.0.0.1", 29500},
      {"a job of Kubernetes",
       {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-0.svc"}},
       2,
       0,
       "job-0.svc",
       29500},
      {"LeaderWorkerSet",
       {{"LWS_WORKER_INDEX", "1"}, {"LWS_GROUP_SIZE", "4"}, {"LWS_LEADER_ADDRESS", "leader.svc"}},
       1,
       0,
       "leader.svc",
       29500},
  };
  for (const LauncherCase& each : cases) {
    SCOPED_TRACE(each.name);
    const auto place = place_of({.tensor_parallel_size = 4}, each.variables);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->rank, each.rank);
    EXPECT_EQ(place->world_size, 4);
    EXPECT_EQ(place->local_rank, each.local_rank);
    EXPECT_EQ(place->master_addr, each.addr);
    EXPECT_EQ(place->master_port, each.port);
    EXPECT_FALSE(place->starts_others);
  }
}

TEST(RankPlace, flags_win_over_the_environment) {
  const Variables torchrun = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29400"}};
  const RankPlace place =
      place_of({.tensor_parallel_size = 2, .rank = 1, .world_size = 2, .master_addr = "node-5", .master_port = 77}, torchrun)
          .value();
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 2);
  EXPECT_EQ(place.master_addr, "node-5");
  EXPECT_EQ(place.master_port, 77);
}

TEST(RankPlace, what_does_not_fit_is_named) {
  EXPECT_EQ(error_of({.tensor_parallel_size = 2}, {{"RANK", "0"}, {"WORLD_SIZE", "4"}}),
            "--tensor-parallel-size 2: WORLD_SIZE says that there are 4 ranks; both must be equal");
  EXPECT_EQ(error_of({.tensor_parallel_size = 2, .rank = 0, .world_size = 3}, {}),
            "--tensor-parallel-size 2: --world-size says that there are 3 ranks; both must be equal");
  EXPECT_EQ(error_of({.tensor_parallel_size = 2, .rank = 2}, {}),
            "rank 2 is not among the 2 ranks of --tensor-parallel-size: they are counted from 0");
  EXPECT_EQ(error_of({.tensor_parallel_size = 4}, {{"RANK", "one"}, {"WORLD_SIZE", "4"}}),
            "RANK must be a number from 0 to 1048576, got 'one'");
  EXPECT_EQ(error_of({.tensor_parallel_size = 2, .world_size = 2}, {}), "--world-size 2: --rank is missing");
  EXPECT_EQ(error_of({.tensor_parallel_size = 2, .master_addr = "node-0"}, {}), "--master-addr node-0: --rank is missing");
  EXPECT_EQ(error_of({.tensor_parallel_size = 65}, {}), "--tensor-parallel-size must be from 1 to 64, got 65");
}

}  // namespace
}  // namespace baton
