/// Engines over several ranks for tests: with BATON_TEST_RANKS=2 every engine and executor that runs steps on the CPU, or on
/// the asynchronous test device, is one of two ranks. Not so where a test wants to abort (a process that dies in a death test
/// has the ranks' memory too), where it makes an engine that runs no step, and on CUDA. Programs about bookkeeping alone
/// (scheduler, cache, queue, plans) have no ranks.
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

#include "engine/step/rank_steps.h"
#include "kernels/backend.h"
#include "model/decoder.h"
#include "model/source/safetensors.h"
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

/// Makes a rank's device, and its part of a model on it. `ranks` null: there is one rank.
using MakeRankBackend = std::function<Result<std::unique_ptr<Backend>>(const std::shared_ptr<RankGroup>& ranks)>;
using MakeRankModel = std::function<Result<std::unique_ptr<Model>>(Backend&)>;

/// A rank > 0: runs what rank 0's engine runs.
inline void follow_with_model(const std::shared_ptr<RankGroup>& ranks, const MakeRankBackend& make_device,
                              const MakeRankModel& make_model) {
  auto backend = make_device(ranks);
  auto model = backend ? make_model(**backend) : tl::unexpected(backend.error());
  const auto done = model ? follow_rank_0(std::move(*backend), std::move(*model), *ranks) : tl::unexpected(model.error());
  if (!done) ranks->fail(done.error().message);
}

/// The group of an engine of `n_ranks`, as fork_test_ranks; null for one rank.
inline std::shared_ptr<RankGroup> fork_followers(int n_ranks, const MakeRankBackend& make_device,
                                                 const MakeRankModel& make_model) {
  if (n_ranks == 1) return nullptr;
  return fork_test_ranks(n_ranks,
                         [&](const std::shared_ptr<RankGroup>& ranks) { follow_with_model(ranks, make_device, make_model); });
}

/// The CPU on one thread.
inline MakeRankBackend cpu_of_rank(bool batch_invariant) {
  return [batch_invariant](const std::shared_ptr<RankGroup>& ranks) {
    return make_backend("cpu", {.n_threads = 1, .batch_invariant = batch_invariant, .ranks = ranks});
  };
}

/// A model of random weights, in f32.
inline MakeRankModel random_model(const ModelSpec& spec) {
  return [spec](Backend& backend) -> Result<std::unique_ptr<Model>> {
    BATON_TRY(ModelSpec of_rank, split_spec(spec, {backend.info().rank, backend.info().world_size}));
    BATON_TRY(ModelWeights weights, random_weights(spec, backend, DType::f32, 11, 1));
    return std::make_unique<Model>(std::move(of_rank), std::move(weights));
  };
}

/// The model of a checkpoint, in f32. The checkpoint must outlive what is returned. `has_int8_x`: see load_weights.
inline MakeRankModel checkpoint_model(const ModelSpec& spec, const Checkpoint& checkpoint, bool has_int8_x = false) {
  return [spec, &checkpoint, has_int8_x](Backend& backend) -> Result<std::unique_ptr<Model>> {
    BATON_TRY(ModelSpec of_rank, split_spec(spec, {backend.info().rank, backend.info().world_size}));
    BATON_TRY(ModelWeights weights, load_weights(spec, checkpoint, backend, DType::f32, 1, {}, has_int8_x));
    return std::make_unique<Model>(std::move(of_rank), std::move(weights));
  };
}

}  // namespace baton::testing
