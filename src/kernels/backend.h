/// The interface of a device: memory, weights and KV storage of one device, and the implementations of ops.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/attention_costs.h"
#include "kernels/kv_storage.h"
#include "kernels/ops.h"
#include "kernels/state_storage.h"
#include "kernels/stored_matrix.h"

namespace baton {

class RankGroup;

struct BackendOptions {
  int n_threads = 0;                      ///< 0: as many as CPU affinity and quota allow, shared by the ranks
  bool batch_invariant = false;           ///< rows keep their bits in any company; tested when a weight is packed
  int device = 0;                         ///< index of the CUDA device
  int attention_blocks = 0;               ///< blocks of the CUDA attention kernel; 0: as many as fit; does not affect results
  std::shared_ptr<RankGroup> ranks = {};  ///< that share each operation's work; null: one rank
};

/// The existing modules, by the names that make_backend takes.
inline constexpr auto kBackendNames = std::to_array<std::string_view>({"cpu", "cuda"});

/// Describes a backend to people and in reports. Only the loader may base decisions on these names; other code uses
/// BackendCapabilities. Constant.
struct BackendInfo {
  std::string name;               ///< one of kBackendNames
  std::string device;             ///< "AMD EPYC, 2 threads"
  std::string features;           ///< "avx512_bf16", "sm_90", ...
  std::int64_t memory_bytes = 0;  ///< total memory of the device
  int rank = 0;
  int world_size = 1;
};

/// What a backend can do, and what it expects of other code. Constant.
struct BackendCapabilities {
  bool has_bf16_matmul = false;      ///< bf16 matrices can be packed
  bool has_f16_matmul = false;       ///< f16 matrices can be packed
  bool has_batch_invariant = false;  ///< BackendOptions::batch_invariant is accepted
  bool is_asynchronous = false;      ///< operations are enqueued and run later; otherwise they run when called
  bool shares_host_memory = false;   ///< its memory is the host's, which everything else on the machine uses too
  /// Outputs of matmuls inside a layer are best stored in the weights' dtype; otherwise in f32. The residual stream
  /// and logits are f32 on every backend.
  bool rounds_matmul_outputs = false;
  bool gains_by_f8_rows = false;  ///< some weights multiply many rows of x in f8_e4m3 faster: PackedMatrix::fewest_f8_rows
  bool has_int8_x = false;        ///< matrices in integers can be packed with StoredMatrix::has_int8_x
  bool gains_by_int8_x = false;   ///< and then they multiply any number of rows faster
  /// make_state_storage, gated_delta_rule, sigmoid_gate, short_conv with ConvKind::silu and no bias, and gated_norm with
  /// GatedNormOrder::norm_first and one weight for all heads.
  bool has_recurrent_layers = false;
  bool has_gated_conv = false;  ///< with has_recurrent_layers: ConvKind::gated
  bool has_mamba2 = false;      ///< with has_recurrent_layers: mamba2_scan, biases of short_conv, all of gated_norm
  bool deals_pairs = false;     ///< the plan must assign the (item, KV head) pairs of attention to its workers
};

/// Parameters that make the engine fast on a backend. Constant for a device, because they determine the plan of a step
/// and so the order of its sums.
struct BackendTuning {
  AttentionCosts attention_costs;
  /// Prompt rows of a step in which others decode: more rows would not lower the time per row, and would delay the
  /// decodes. 0: as many as fit.
  std::int32_t prefill_rows = 0;
  std::int32_t max_captured_rows = 0;  ///< larger decode steps gain nothing from a captured graph; 0: no step does
};

/// Memory of a backend; the destructor frees it. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::byte* data, std::size_t size_bytes, void (*release)(std::byte*, std::size_t))
      : data_(data), size_bytes_(size_bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) release_(data_, size_bytes_);
  }
  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }
  /// The first elements of the buffer as a tensor. Aborts if the buffer is too small.
  TensorView view(DType dtype, Shape shape) const {
    const TensorView made{data_, dtype, shape};
    check(made.size_bytes() <= size_bytes_, "Buffer::view: the tensor is larger than the buffer");
    return made;
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(release_, other.release_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  void (*release_)(std::byte*, std::size_t) = nullptr;
};

/// Columns of rows in 8 bits (kernels/ops.h) are a multiple of this many.
inline constexpr std::int64_t kF8RowStep = 16;
/// More rows than any step has.
inline constexpr std::int64_t kNoF8Rows = std::int64_t{1} << 40;

/// A weight [n, k] in the layout that the backend multiplies fastest.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;  ///< of the x of a matmul, and of dense weights
  WeightScheme scheme = WeightScheme::dense;
  std::int64_t fewest_f8_rows = kNoF8Rows;  ///< from so many on, rows of x may be in f8_e4m3: see kernels/ops.h
  bool has_int8_x = false;                  ///< it was packed with StoredMatrix::has_int8_x
  std::size_t size_bytes = 0;
};

/// Weights [n, k] of several experts, in the layout that the backend multiplies fastest. The x of a grouped_matmul
/// must have `dtype`.
class PackedExperts {
 public:
  virtual ~PackedExperts() = default;
  std::int64_t n_experts = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;
  WeightScheme scheme = WeightScheme::dense;  ///< of all experts
  std::size_t size_bytes = 0;
};

/// A dense matrix [n, k] for each head. The x of a head_matmul must have `dtype`.
class PackedHeads {
 public:
  virtual ~PackedHeads() = default;
  std::int64_t n_heads = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;
  std::size_t size_bytes = 0;
};

/// Reads the weight of one expert into host memory, where it stays until the next call.
using ReadExpert = std::function<Result<StoredMatrix>(std::int64_t expert)>;

/// Operations that were captured once and can be replayed on the same memory: a CUDA graph or, on a backend without
/// graphs, the calls themselves. Sizes that the operations took from their arguments are fixed. Memory that they read,
/// including the step's sections, may change between replays.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  /// Enqueues all captured operations.
  virtual void replay() = 0;
};

/// Copies results from device memory to the host. Nothing waits for the copy until it is needed.
class AsyncReadback {
 public:
  virtual ~AsyncReadback() = default;
  /// Enqueues a copy of `device`, after the operations so far. `device` has at most the size that this object was made
  /// for, and may be empty. The previous copy must have been waited for.
  virtual void enqueue(ConstTensorView device) = 0;
  /// Waits for the last copy and returns its bytes, valid until the next enqueue.
  virtual std::span<const std::byte> wait() = 0;
};

/// Copies data of the host to one address of the device, where operations and captured graphs find the last copy.
class AsyncUpload {
 public:
  virtual ~AsyncUpload() = default;
  /// The host memory to write the next data to, as large as this object was made for, without initial values. Waits
  /// until the last copy has been read.
  virtual std::span<std::byte> host() = 0;
  /// Enqueues a copy of the first `n_bytes` bytes of host(), after the operations so far.
  virtual void enqueue(std::size_t n_bytes) = 0;
  /// The copy on the device: always the same address.
  virtual const std::byte* device() const = 0;
};

/// One device. Functions that allocate return a Result. All others abort on failure, because a device that fails in
/// the middle of a step cannot continue. Operations are called through ops.h, which checks their arguments. Thread:
/// engine only.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;
  virtual BackendCapabilities capabilities() const = 0;
  virtual BackendTuning tuning() const = 0;
  /// Free device memory at the time of the call.
  virtual std::int64_t free_memory_bytes() const = 0;

  /// Uninitialised device memory, 64-byte aligned. Errors: out_of_memory.
  virtual Result<Buffer> allocate(std::size_t size_bytes) = 0;
  /// Uninitialised host memory, 64-byte aligned, that copies to and from the device need not stage (pinned, where there
  /// is such memory). Errors: out_of_memory.
  virtual Result<Buffer> allocate_host(std::size_t size_bytes) = 0;
  /// Copies between tensors of as many bytes, after the operations so far; done when the call returns.
  virtual void copy_from_host(TensorView device, ConstTensorView host) = 0;
  virtual void copy_to_host(TensorView host, ConstTensorView device) = 0;
  /// Copiers of at most `size_bytes`, with memory of their own. Errors: out_of_memory.
  virtual Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) = 0;
  virtual Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) = 0;
  /// Makes room for steps of up to `size_bytes`. After this call a larger step aborts, and a device keeps the step at
  /// one address (unless the call is repeated with a larger size). Without this call, memory for steps grows as needed
  /// and may move, which invalidates a CapturedGraph that reads a step. Errors: out_of_memory.
  virtual Result<void> reserve_steps(std::size_t size_bytes) = 0;
  /// Returns the step as operations read it, valid until the next-but-one upload. A CPU reads `bytes` in place, so
  /// they must live that long. A device copies each step to the same address, in the order of the operations, so that
  /// a CapturedGraph finds the new step in place of the old one.
  virtual StepView upload_step(const StepInput& step) = 0;
  /// Waits until all enqueued operations have run.
  virtual void synchronize() = 0;
  /// Captures the operations that `operations` calls; a device does not run them. `operations` is called once, during
  /// this call, and may only call operations: no allocation, upload, copy or synchronize. A replay serves later steps
  /// of any lengths and items with at most as many rows and samples (outputs beyond the step's own are undefined) and
  /// as many groups. One exception: attention captured for a step without partial states includes no merge and serves
  /// only such steps.
  virtual Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) = 0;
  /// Runs `operations`, waits, and returns their time in microseconds by the device's clock.
  virtual double time_us(const std::function<void()>& operations) = 0;

  /// Packs a matrix in host memory for multiplication by x of `dtype`: f32, or bf16 or f16 as capabilities() says. Reads
  /// dense values once, from front to back. Errors (unsupported) name a scheme that the backend has no kernels for.
  virtual Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) = 0;
  /// Packs weights of `shape` [n_experts, n, k] for grouped_matmul. Calls `read` once for each expert, in order; it
  /// returns [n, k], of `dtype` if it is dense. Errors: those of `read` and of pack_matrix.
  virtual Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                              const ReadExpert& read) = 0;
  /// Packs matrices [n_heads, n, k] in host memory for head_matmul. Errors: those of allocate; unsupported (sizes that the
  /// backend has no kernels for).
  virtual Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) = 0;
  /// Keys and values of all layers of a group. Errors: out_of_memory; unsupported (a type, scales or a head size that the backend
  /// does not take).
  virtual Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) = 0;
  /// Bytes that one block takes in a storage of `shape`, over all layers: KvShape::block_bytes and the padding of heads.
  virtual std::int64_t kv_block_bytes(const KvShape& shape) const = 0;
  /// Takes StateShape::slot_bytes for each slot. Errors: out_of_memory; unsupported (no has_recurrent_layers, a shape that
  /// StateShape does not allow, or on CUDA matrices in bf16).
  virtual Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) = 0;

  virtual void resolve_rows(const ResolveRowsArgs& args) = 0;
  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void layer_norm(const LayerNormArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void rope_append(const RopeAppendArgs& args) = 0;
  virtual void norm_columns(const NormColumnsArgs& args) = 0;
  virtual void head_matmul(const HeadMatmulArgs& args) = 0;
  virtual void latent_append(const LatentAppendArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void attention_merge(const AttentionMergeArgs& args) = 0;
  virtual void short_conv(const ShortConvArgs& args) = 0;
  virtual void gated_delta_rule(const GatedDeltaRuleArgs& args) = 0;
  virtual void mamba2_scan(const Mamba2ScanArgs& args) = 0;
  virtual void gated_norm(const GatedNormArgs& args) = 0;
  virtual void sigmoid_gate(const SigmoidGateArgs& args) = 0;
  virtual void route_experts(const RouteExpertsArgs& args) = 0;
  virtual void grouped_matmul(const GroupedMatmulArgs& args) = 0;
  virtual void combine_experts(const CombineExpertsArgs& args) = 0;
  virtual void activation(const ActivationArgs& args) = 0;
  virtual void gated_activation(const GatedActivationArgs& args) = 0;
  virtual void gated_matmul(const GatedMatmulArgs& args) = 0;
  virtual void scale_logits(const ScaleLogitsArgs& args) = 0;
  virtual void sample(const SampleArgs& args) = 0;
  /// Where a rank is lost, the collectives and whatever waits for them end with worthless results (RankGroup::is_broken).
  virtual void all_reduce(TensorView x) = 0;
  virtual void all_gather(const AllGatherArgs& args) = 0;
};

/// Opens the module libbaton_NAME.so beside the program (or in BATON_MODULE_PATH) and makes its backend. The error
/// names what is missing: the module, the device or its driver. A module that was built against other headers is refused.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);

/// Names of the available modules, for --version.
std::vector<std::string> backend_names();

/// The function that a module exports under the name "baton_make_backend".
using MakeBackendFunction = Result<std::unique_ptr<Backend>> (*)(const BackendOptions& options);
/// The function that a module exports under the name "baton_backend_interface": the hash of the headers that it was built against
/// (<baton_interface.h>).
using BackendInterfaceFunction = const char* (*)();

}  // namespace baton
