/// Engines over several ranks for tests, on the CPU: BATON_TEST_RANKS=2 makes every tiny engine of the CPU one of two ranks.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "engine/rank_steps.h"
#include "kernels/backend.h"
#include "model/decoder.h"
#include "model/split.h"
#include "model/weights.h"
#include "ranks/rank_group.h"

namespace baton::testing {

/// The ranks of each engine that a test makes on the CPU: BATON_TEST_RANKS, 1 if it is not set.
inline int n_test_ranks() {
  static const int n = [] {
    const char* const text = std::getenv("BATON_TEST_RANKS");
    return text == nullptr ? 1 : std::atoi(text);
  }();
  return n;
}

/// This rank's part of a model of random weights, in f32.
inline Result<std::unique_ptr<Model>> make_random_model(const ModelSpec& spec, Backend& backend) {
  BATON_TRY(ModelSpec of_rank, split_spec(spec, {backend.info().rank, backend.info().world_size}));
  BATON_TRY(ModelWeights weights, random_weights(spec, backend, DType::f32, 11, 1));
  return std::make_unique<Model>(std::move(of_rank), std::move(weights));
}

/// What a rank > 0 does from its beginning to its end.
using FollowAsRank = std::function<void(const std::shared_ptr<RankGroup>& ranks)>;

/// Forks this program for each rank > 0 and returns rank 0's group, which must live as long as its engine. The other
/// ranks end with it. Each runs on a new thread: OpenMP's threads of the forking thread are not there in a child.
inline std::shared_ptr<RankGroup> fork_test_ranks(int n_ranks, const FollowAsRank& follow) {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  auto listener = RankListener::bind("127.0.0.1", 0);
  EXPECT_TRUE(listener) << listener.error().message;
  RankOptions options{.world_size = n_ranks, .master_port = listener->port()};
  for (options.rank = 1; options.rank < n_ranks; ++options.rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::thread([&] {
      options.local_rank = options.rank;
      if (auto joined = RankGroup::join(options)) follow(*joined);
    }).join();
    ::_exit(0);
  }
  options.rank = 0;
  auto group = RankGroup::host(std::move(*listener), options);
  EXPECT_TRUE(group) << group.error().message;
  return std::move(*group);
}

/// A rank > 0 of a model of random weights.
inline void follow_with_random_model(const ModelSpec& spec, bool batch_invariant, const std::shared_ptr<RankGroup>& ranks) {
  auto backend = make_backend("cpu", {.n_threads = 1, .batch_invariant = batch_invariant, .ranks = ranks});
  auto model = backend ? make_random_model(spec, **backend) : tl::unexpected(backend.error());
  const auto done = model ? follow_rank_0(std::move(*backend), std::move(*model), *ranks) : tl::unexpected(model.error());
  if (!done) ranks->fail(done.error().message);
}

}  // namespace baton::testing
