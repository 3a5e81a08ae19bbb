/// An asynchronous device for tests: the CPU module's arithmetic with a queue in front, which runs only when it must or
/// when told to.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace baton::testing {

/// When the device runs enqueued operations.
enum class Pace {
  late,     ///< when someone waits, and only as far as necessary
  at_once,  ///< before the call that enqueues returns
  random,   ///< a random part at each call
};

/// An asynchronous backend that is as strict as its contract (kernels/backend.h) allows:
///
/// - Operations are enqueued. Their arguments are copied; the tensors that they refer to are read when they run.
/// - A step is copied when it is uploaded. Its headers are valid until the next-but-one upload and are overwritten
///   then.
/// - A readback arrives when it is waited for. Until then its host memory holds 0xff.
/// - A captured graph runs the captured operations over the step that is on the device when it runs, reduced to the
///   step's
/// rows. It never calls the captured function again.
/// - New memory holds 0xff, which is NaN in every float dtype. So does every block of a KV storage that no step has
/// written, that the engine has freed (see watch_free_blocks), or whose first position a step writes, which begins a
/// new use of the block.
///
/// A violation of the contract aborts. Thread: the engine's, unless stated otherwise.
class AsyncBackend final : public Backend {
 public:
  static Result<std::unique_ptr<AsyncBackend>> make(const BackendOptions& options, Pace pace, std::uint32_t seed = 1);
  ~AsyncBackend() override;

  /// From now on the device runs only what let_run allows: a caller that waits for more is blocked / `n` more
  /// operations may run / the device runs by itself again. Thread: any.
  void hold();
  void let_run(std::uint64_t n);
  void release();
  /// Whether a caller waits for an operation that may not run. Thread: any.
  bool is_waited_for() const;

  /// Makes the n-th call from now on that can fail (allocate, allocate_host, make_readback, make_upload, capture,
  /// pack_matrix, make_kv_storage, make_state_storage) fail.
  void fail_call(int n) { n_calls_until_failure_ = n; }

  /// Calls `free_blocks` at each upload for the free blocks of a layer group, and overwrites these in the order of the
  /// operations. Storages must have been made in the order of the groups.
  void watch_free_blocks(std::function<std::vector<BlockId>(int group)> free_blocks) { free_blocks_ = std::move(free_blocks); }

  /// The same for the free slots of recurrent states.
  void watch_free_states(std::function<std::vector<std::int32_t>()> free_states) { free_states_ = std::move(free_states); }

  std::uint64_t n_replays() const { return n_replays_; }
  /// Number of operations, graphs, uploads and copies that were enqueued, and that have run.
  std::uint64_t n_enqueued() const { return n_enqueued_; }
  std::uint64_t n_run() const { return n_run_; }
  /// Number of blocks that were overwritten because the engine had freed them or because a new use of them began.
  std::uint64_t n_blocks_overwritten() const { return n_blocks_overwritten_; }
  std::uint64_t n_states_overwritten() const { return n_states_overwritten_; }  ///< the same of slots of states

  BackendInfo info() const override;
  BackendCapabilities capabilities() const override;
  BackendTuning tuning() const override;
  std::int64_t free_memory_bytes() const override;
  Result<Buffer> allocate(std::size_t size_bytes) override;
  Result<Buffer> allocate_host(std::size_t size_bytes) override;
  void copy_from_host(TensorView device, ConstTensorView host) override;
  void copy_to_host(TensorView host, ConstTensorView device) override;
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override;
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override;
  Result<void> reserve_steps(std::size_t size_bytes) override;
  StepView upload_step(const StepInput& step) override;
  void synchronize() override;
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override;
  double time_us(const std::function<void()>& operations) override;
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override;
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override;
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override;
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override;
  std::int64_t kv_block_bytes(const KvShape& shape) const override { return inner_->kv_block_bytes(shape); }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) override;

  void resolve_rows(const ResolveRowsArgs& args) override;
  void embedding(const EmbeddingArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope_append(const RopeAppendArgs& args) override;
  void norm_columns(const NormColumnsArgs& args) override;
  void head_matmul(const HeadMatmulArgs& args) override;
  void latent_append(const LatentAppendArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_merge(const AttentionMergeArgs& args) override;
  void short_conv(const ShortConvArgs& args) override;
  void gated_delta_rule(const GatedDeltaRuleArgs& args) override;
  void mamba2_scan(const Mamba2ScanArgs& args) override;
  void gated_norm(const GatedNormArgs& args) override;
  void sigmoid_gate(const SigmoidGateArgs& args) override;
  void route_experts(const RouteExpertsArgs& args) override;
  void grouped_matmul(const GroupedMatmulArgs& args) override;
  void combine_experts(const CombineExpertsArgs& args) override;
  void activation(const ActivationArgs& args) override;
  void gated_activation(const GatedActivationArgs& args) override;
  void gated_matmul(const GatedMatmulArgs& args) override;
  void scale_logits(const ScaleLogitsArgs& args) override;
  void sample(const SampleArgs& args) override;
  void all_reduce(TensorView x) override;
  void all_gather(const AllGatherArgs& args) override;

 private:
  class Readback;
  class HostUpload;
  class Graph;
  class Storage;
  class States;
  /// The state of the device that an operation sees when it runs.
  struct Moment {
    StepView step;
    bool is_replay = false;
    std::int32_t captured_rows = 0;  ///< of the step that a replay was captured for

    /// Rows that a captured operation must compute, of those it was captured for. A tensor may have several rows for
    /// each row of the step.
    template <class View>
    void narrow(View& tensor) const {
      if (is_replay && tensor.data != nullptr) tensor = tensor.rows(0, tensor.shape[0] / captured_rows * step.header->n_rows);
    }
    void narrow(ExpertChoices& choices) const {
      for (TensorView* of_rows : {&choices.experts, &choices.weights, &choices.places, &choices.rows}) narrow(*of_rows);
    }
  };
  using Operation = std::function<void(const Moment&)>;
  /// A step's copy on the host, from which it is sent to the device.
  struct Upload {
    std::vector<std::byte> bytes;
    std::uint64_t serial = 0;  ///< of the operation that reads it
  };
  static constexpr std::size_t kValidUploads = 2;
  static constexpr std::size_t kKeptUploads = 8;  ///< older ones are overwritten with 0xff
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

  AsyncBackend(std::unique_ptr<Backend> inner, Pace pace, std::uint32_t seed);
  Result<void> may_fail();
  void enqueue(std::function<void()> work);
  void launch(Operation operation);
  bool take_permission(bool waits);
  void run_some();
  void run_until(std::uint64_t serial);
  Moment now() const;
  void overwrite_blocks(const StepInput& step);

  std::unique_ptr<Backend> inner_;
  Pace pace_;
  std::mt19937 rng_;
  std::deque<std::function<void()>> queue_;
  std::uint64_t n_enqueued_ = 0;
  std::uint64_t n_run_ = 0;
  std::deque<std::unique_ptr<Upload>> uploads_;  ///< newest last
  std::vector<std::byte> step_;                  ///< the device's copy, at one address
  std::vector<Operation>* captured_ = nullptr;   ///< operations of the graph while it is captured
  std::vector<Storage*> storages_;               ///< by layer group
  States* states_ = nullptr;                     ///< null: there are none
  std::function<std::vector<BlockId>(int group)> free_blocks_;
  std::function<std::vector<std::int32_t>()> free_states_;
  int n_calls_until_failure_ = -1;
  std::uint64_t n_replays_ = 0;
  std::uint64_t n_blocks_overwritten_ = 0;
  std::uint64_t n_states_overwritten_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable allowed_more_;
  // Guarded by mutex_.
  std::uint64_t n_allowed_ = kNoLimit;
  bool is_waited_for_ = false;
};

}  // namespace baton::testing
