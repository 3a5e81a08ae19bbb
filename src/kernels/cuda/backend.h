/// The CUDA backend: one device, one stream, and one file for each operation.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cuda/async_transfers.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/gemms.h"
#include "kernels/cuda/ranks/collectives.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/cuda/schemes/scheme_gemm.h"
#include "kernels/random_packing.h"

namespace baton::cuda {

/// Enqueues every operation on one stream when it is called. All steps are uploaded to the same address. Invariant:
/// device_ does not move and outlives all objects made with it. Thread: engine only.
class CudaBackend final : public Backend, public RandomPacking {
 public:
  /// Errors name the cause: no driver, no device with this number, a driver or device that is too old, or too little
  /// memory.
  static Result<std::unique_ptr<Backend>> make(const BackendOptions& options);
  ~CudaBackend() override;

  BackendInfo info() const override;
  BackendCapabilities capabilities() const override;
  BackendTuning tuning() const override;
  std::int64_t free_memory_bytes() const override;
  Result<Buffer> allocate(std::size_t size_bytes) override;
  Result<Buffer> allocate_host(std::size_t size_bytes) override;
  /// Both wait for all operations enqueued so far.
  void copy_from_host(TensorView device, ConstTensorView host) override;
  void copy_to_host(TensorView host, ConstTensorView device) override;
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override;
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override;
  Result<void> reserve_steps(std::size_t size_bytes) override;
  StepView upload_step(const StepInput& step) override;
  void synchronize() override;
  /// Captures the calls in a CUDA graph that is instantiated once.
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override;
  double time_us(const std::function<void()>& operations) override;
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override;
  Result<std::unique_ptr<PackedMatrix>> pack_random(std::span<const RandomRows> rows, std::int64_t k, DType dtype,
                                                    std::string_view name) override;
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override;
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override;
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override;
  std::int64_t kv_block_bytes(const KvShape& shape) const override;
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
  /// Pinned memory for every second upload; the host reads the step's headers there.
  struct Staging {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
    cudaEvent_t was_read = nullptr;
  };

  CudaBackend() = default;
  Result<void> open(const BackendOptions& options);
  Result<void> allocate_step(std::size_t size_bytes);
  /// Packs a dense matrix [n, k] that `write` writes to its memory.
  Result<std::unique_ptr<PackedMatrix>> pack_dense(const Shape& shape, DType dtype, std::string_view name,
                                                   const std::function<void(CudaMatrix& matrix)>& write);
  /// The device, after making it the calling thread's current device, which launches use.
  const Device& device() const;

  Device device_;
  bool batch_invariant_ = false;
  int attention_blocks_ = 0;  ///< blocks of the persistent grid, all resident at once
  SampleWorkspace sampling_;
  std::unique_ptr<Gemms> gemms_;
  std::unique_ptr<SchemeGemm> schemes_;
  std::unique_ptr<Collectives> collectives_;  ///< null: one rank
  ReadbackOrder readbacks_;
  std::byte* step_ = nullptr;  ///< address of every uploaded step
  std::size_t step_bytes_ = 0;
  bool is_step_reserved_ = false;
  std::byte* chunk_states_ = nullptr;  ///< of batch-invariant mode, from the first storage on whose kernel keeps them there
  std::span<std::byte> chunk_memory_;  ///< for chunks of recurrent layers; none in batch-invariant mode
  std::array<Staging, 2> staging_;
  std::size_t n_uploads_ = 0;
  cudaEvent_t timing_begin_ = nullptr;
  cudaEvent_t timing_end_ = nullptr;
};

}  // namespace baton::cuda
