/// Decode steps of whole models over several GPUs: requests behind one shared prompt of 2048 tokens, on one rank and on
/// two. The ranks are threads, each with a GPU; weights are random, in the shapes of bench/shapes. A step is a captured
/// graph, from the embeddings to the sampled tokens; its time is the device's, without the host's part.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/backend.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/split.h"
#include "model/weights.h"
#include "ranks/rank_group.h"
#include "support/step_builder.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
constexpr std::int32_t kShared = 2048;
constexpr std::int32_t kSharedBlocks = kShared / kBlockLen;
constexpr std::int32_t kOwn = 8;  ///< tokens of a request behind the shared prompt
constexpr std::int32_t kMostRequests = 128;
constexpr std::int32_t kMaxPartials = 1 << 14;
constexpr int kReplays = 9;
constexpr int kWarmUps = 2;
constexpr int kStepsATime = 10;  ///< one after the other, as in the engine, so that the launch of a graph is hidden

/// One rank's device and model.
struct Rank {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<KvStorage>> storages;
  std::vector<KvStorage*> kv_of_group;
  std::vector<AttentionShape> shapes;
  Buffer slots;
  Buffer results;

  TensorView slot_table() const { return slots.view(DType::u8, {kMostRequests, sizeof(SlotState)}); }

  Result<void> load(const ModelSpec& spec, std::shared_ptr<RankGroup> group, int n_ranks) {
    BackendOptions options;
    options.n_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / n_ranks);
    options.device = group == nullptr ? 0 : group->rank();
    options.ranks = std::move(group);
    BATON_TRY(backend, make_backend("cuda", options));
    BATON_TRY(ModelSpec of_rank, split_spec(spec, {backend->info().rank, backend->info().world_size}));
    BATON_TRY(ModelWeights weights, random_weights(spec, *backend, DType::bf16, 1, options.n_threads));
    model = std::make_unique<Model>(std::move(of_rank), std::move(weights));
    BATON_TRY_VOID(model->prepare(*backend, {.max_rows = kShared,
                                             .max_samples = kMostRequests,
                                             .max_partials = kMaxPartials,
                                             .max_slots = kMostRequests,
                                             .max_positions = 2 * kShared}));
    shapes = model->attention_shapes(kBlockLen, DType::bf16);
    for (const KvShape& shape : model->kv_shapes(kSharedBlocks + kMostRequests, kBlockLen, DType::bf16)) {
      BATON_TRY(std::unique_ptr<KvStorage> storage, backend->make_kv_storage(shape));
      storage->fill_bytes(0);
      kv_of_group.push_back(storage.get());
      storages.push_back(std::move(storage));
    }
    BATON_TRY(slots, backend->allocate(kMostRequests * sizeof(SlotState)));
    BATON_TRY(results, backend->allocate(kMostRequests * sizeof(SampleResult)));
    prefill();
    return {};
  }

  AttentionPlanOptions plan_options(bool relay) const {
    AttentionPlanOptions options;
    options.relay = relay;
    options.costs = backend->tuning().attention_costs;
    options.deals_pairs = backend->capabilities().deals_pairs;
    options.max_partials = kMaxPartials;
    return options;
  }

  static TokenId token(std::int32_t i, std::int32_t n_vocab) { return (i * 7919 + 13) % n_vocab; }

  /// Computes the keys and values of the shared prompt, in the first blocks.
  void prefill() {
    std::vector<BlockId> blocks;
    for (std::int32_t i = 0; i < kSharedBlocks; ++i) blocks.push_back(BlockId{i});
    testing::StepSequence prompt;
    prompt.rows = {SlotId{0}, blocks, kShared, kShared};
    for (std::int32_t i = 0; i < kShared; ++i) prompt.tokens.push_back(token(i, model->spec().n_vocab));
    prompt.sampling.max_tokens = kShared;
    const StepInput step = testing::pack_groups_step(std::span(&prompt, 1), shapes, plan_options(true), {0});
    const StepView view = backend->upload_step(step);
    model->forward(*backend, view, slot_table(), kv_of_group);
    backend->synchronize();
  }

  /// Median time of a step that decodes `n` requests, in microseconds.
  double decode_us(std::int32_t n, bool relay) {
    std::vector<std::vector<BlockId>> blocks(static_cast<std::size_t>(n));
    std::vector<testing::StepSequence> requests(static_cast<std::size_t>(n));
    std::vector<std::int32_t> resets;
    for (std::int32_t r = 0; r < n; ++r) {
      auto& table = blocks[static_cast<std::size_t>(r)];
      for (std::int32_t i = 0; i < kSharedBlocks; ++i) table.push_back(BlockId{i});
      table.push_back(BlockId{kSharedBlocks + r});
      testing::StepSequence& request = requests[static_cast<std::size_t>(r)];
      request.rows = {SlotId{r}, table, kShared + kOwn, 1};
      request.tokens = {token(r, model->spec().n_vocab)};
      request.sampling.max_tokens = kShared;
      resets.push_back(r);
    }
    const StepInput step = testing::pack_groups_step(requests, shapes, plan_options(relay), resets);
    const StepView view = backend->upload_step(step);
    const TensorView out = results.view(DType::u8, {n, sizeof(SampleResult)});
    const auto operations = [&] {
      const TensorView logits = model->forward(*backend, view, slot_table(), kv_of_group);
      sample(*backend, {view, logits, slot_table(), out});
    };
    operations();
    backend->synchronize();
    const auto graph = backend->capture(operations);
    check(graph.has_value(), [&] { return graph.error().message; });
    std::vector<double> times;
    for (int i = 0; i < kWarmUps + kReplays; ++i) {
      const double us = backend->time_us([&] {
        for (int step_index = 0; step_index < kStepsATime; ++step_index) (*graph)->replay();
      });
      if (i >= kWarmUps) times.push_back(us / kStepsATime);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }
};

/// A model on its ranks. At most one exists at a time, because weights fill the devices.
class Ranks {
 public:
  Ranks(const std::string& shape, int n_ranks) : name_(shape + std::to_string(n_ranks)) {
    const auto spec = read_model_spec(std::filesystem::path(BATON_SOURCE_DIR) / "bench/shapes" / shape);
    if (!spec) {
      error_ = spec.error().message;
      return;
    }
    for (int rank = 0; rank < n_ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
    if (n_ranks > 1) {
      auto groups = RankGroup::make_threads({.world_size = n_ranks});
      check(groups.has_value(), [&] { return groups.error().message; });
      groups_ = std::move(*groups);
    } else {
      groups_.resize(1);
    }
    run([&](std::size_t rank) {
      const auto loaded = ranks_[rank]->load(*spec, groups_[rank], n_ranks);
      if (loaded) return;
      if (groups_[rank] != nullptr) groups_[rank]->fail(loaded.error().message);
      if (rank == 0) error_ = loaded.error().message;
    });
  }
  ~Ranks() {
    run([&](std::size_t rank) { ranks_[rank].reset(); });
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const std::string& name() const { return name_; }
  const std::string& error() const { return error_; }
  double decode_us(std::int32_t n_requests, bool relay) {
    double of_first = 0;
    run([&](std::size_t rank) {
      const double us = ranks_[rank]->decode_us(n_requests, relay);
      if (rank == 0) of_first = us;
    });
    return of_first;
  }
  double weight_bytes() const { return static_cast<double>(ranks_.front()->model->weight_bytes()); }

 private:
  void run(const std::function<void(std::size_t)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  std::string name_;
  std::string error_;
  std::vector<std::shared_ptr<RankGroup>> groups_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

void decode_steps(benchmark::State& state, const std::string& shape, int n_ranks, std::int32_t n_requests, bool relay) {
  static Ranks* ranks = nullptr;  // the last one stays: CUDA ends before static objects do
  if (ranks == nullptr || ranks->name() != shape + std::to_string(n_ranks)) {
    delete ranks;
    ranks = new Ranks(shape, n_ranks);
  }
  if (!ranks->error().empty()) return state.SkipWithError(ranks->error().c_str());
  for (auto _ : state) state.SetIterationTime(ranks->decode_us(n_requests, relay) * 1e-6);
  state.counters["weight_bytes"] = ranks->weight_bytes();
}

const int registered = [] {
  for (const std::string shape : {"llama-3-8b", "llama-2-13b", "llama-30b"})
    for (const int n_ranks : {1, 2})
      for (const std::int32_t n_requests : {1, 32, 128})
        for (const bool relay : {true, false}) {
          const std::string name = "decode/" + shape + "/tp:" + std::to_string(n_ranks) +
                                   "/requests:" + std::to_string(n_requests) + (relay ? "/relay" : "/paged");
          benchmark::RegisterBenchmark(name.c_str(), decode_steps, shape, n_ranks, n_requests, relay)
              ->UseManualTime()
              ->Iterations(1)
              ->Unit(benchmark::kMillisecond);
        }
  return 0;
}();

}  // namespace
}  // namespace baton
