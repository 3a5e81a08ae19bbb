/// The device seam: memory, weights and KV storage of one device, and the bodies of the operations in ops.h.
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

namespace baton {

struct BackendOptions {
  int n_threads = 0;             ///< 0: as many as affinity and quota allow
  bool batch_invariant = false;  ///< products in fixed row tiles, proven when a weight is packed
  int device = 0;                ///< which CUDA device
  int attention_blocks = 0;      ///< blocks of the CUDA attention kernel, 0: as many as fit; results do not depend on it
};

/// The modules there are, by the names that make_backend takes.
inline constexpr auto kBackendNames = std::to_array<std::string_view>({"cpu", "cuda"});

/// What a backend is, for people and reports. Nothing but the loader decides by these names: see BackendCapabilities.
/// Constant.
struct BackendInfo {
  std::string name;               ///< of kBackendNames
  std::string device;             ///< "AMD EPYC, 2 threads"
  std::string features;           ///< "avx512_bf16", "sm_90", ...
  std::int64_t memory_bytes = 0;  ///< of the device, all of it
  int rank = 0;
  int world_size = 1;
};

/// What a backend can do, and what others must do for it. Constant.
struct BackendCapabilities {
  bool has_bf16_matmul = false;      ///< bf16 matrices can be packed; else weights are packed as f32
  bool has_batch_invariant = false;  ///< BackendOptions::batch_invariant is not refused as such
  bool is_asynchronous = false;      ///< operations are enqueued and run while the host goes on; else they run when called
  bool shares_host_memory = false;   ///< its memory is the host's, which everything else on the machine needs too
  /// What matmuls write between the operations of a layer is best in the weights' dtype, else in f32. The residual
  /// stream and logits are f32 on every backend.
  bool rounds_matmul_outputs = false;
  bool deals_pairs = false;  ///< the plan must assign the (item, KV head) pairs of attention to its workers
};

/// How the engine gets the most out of a backend. Constant for a device: the plan of a step, and so the order of its
/// sums, depends on it.
struct BackendTuning {
  AttentionCosts attention_costs;
  /// Rows of prompts in a step in which others decode: more are no faster a row, and delay the decodes. 0: as many as
  /// fit.
  std::int32_t prefill_rows = 0;
  std::int32_t max_captured_rows = 0;  ///< larger decode steps gain nothing by a captured graph; 0: no step gains
};

/// Memory of a backend; freed with it. Move-only.
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
  /// The first elements of the buffer as a tensor; aborts if it is too small.
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

/// A weight [n, k] in the layout the backend multiplies fastest. x of matmul must have `dtype`.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;
  std::size_t size_bytes = 0;
};

/// Operations that were recorded once and can run again as they are, with the same memory: a CUDA graph, or the calls
/// themselves on a backend without graphs. Sizes that the operations took from their arguments are fixed; what they
/// read from memory (the step's sections among it) may change between replays.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  /// Enqueues all of it.
  virtual void replay() = 0;
};

/// A way to the host for what operations leave in device memory, on which nobody waits before it is needed.
class AsyncReadback {
 public:
  virtual ~AsyncReadback() = default;
  /// Enqueues a copy of `device`, of at most the bytes it was made for and maybe none, behind the operations so far.
  /// What was enqueued before must have been waited for.
  virtual void enqueue(ConstTensorView device) = 0;
  /// Waits until what was enqueued last has arrived, and gives it; valid until the next enqueue.
  virtual std::span<const std::byte> wait() = 0;
};

/// One device. Functions that allocate return a Result; everything else aborts on failure, because a device that fails
/// in the middle of a step cannot go on. The operations are called through ops.h, which checks their arguments.
/// Thread: engine only.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;
  virtual BackendCapabilities capabilities() const = 0;
  virtual BackendTuning tuning() const = 0;
  /// Of the device's memory, at the call.
  virtual std::int64_t free_memory_bytes() const = 0;

  /// Uninitialised device memory, 64-byte aligned.
  virtual Result<Buffer> allocate(std::size_t size_bytes) = 0;
  virtual void copy_from_host(TensorView device, ConstTensorView host) = 0;
  virtual void copy_to_host(TensorView host, ConstTensorView device) = 0;
  virtual Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) = 0;
  /// Makes room for steps of up to `size_bytes`. From then on a larger step aborts, and a device keeps steps at one
  /// address (unless it is asked for still more room). Without this call room is made as steps come, which may move
  /// them: a CapturedGraph that reads a step does not survive that. Errors: out_of_memory.
  virtual Result<void> reserve_steps(std::size_t size_bytes) = 0;
  /// The step where the operations read it, valid until the next-but-one upload. A CPU reads `bytes` in place, so they
  /// must live as long; a device copies them to the same address each time, in the order of the operations, so that a
  /// CapturedGraph finds the new step where it found the old one.
  virtual StepView upload_step(const StepInput& step) = 0;
  /// Waits until everything enqueued has run.
  virtual void synchronize() = 0;
  /// Records what `operations` calls (once, at this call; operations only: no allocation, upload, copy or synchronize)
  /// without running it where the device can. A replay serves later steps, whatever their lengths and items, of at
  /// most as many rows and samples (what is behind theirs is not to be read) and as many groups, with one exception:
  /// attention that was recorded for a step without partial states has nothing that merges, and serves only such
  /// steps.
  virtual Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) = 0;
  /// Runs `operations`, waits, and gives the microseconds they took by the device's clock.
  virtual double time_us(const std::function<void()>& operations) = 0;

  /// Packs a host matrix [n, k] (any float dtype) to be multiplied by x of `dtype` (f32 or bf16). Reads `weight` once,
  /// front to back.
  virtual Result<std::unique_ptr<PackedMatrix>> pack_matrix(ConstTensorView weight, DType dtype, std::string_view name) = 0;
  virtual Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) = 0;

  virtual void resolve_rows(const ResolveRowsArgs& args) = 0;
  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void layer_norm(const LayerNormArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void rope_append(const RopeAppendArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void attention_merge(const AttentionMergeArgs& args) = 0;
  virtual void silu_mul(const SiluMulArgs& args) = 0;
  virtual void gelu(const GeluArgs& args) = 0;
  virtual void sample(const SampleArgs& args) = 0;
  virtual void all_reduce(TensorView x) = 0;
  virtual void all_gather(TensorView out, ConstTensorView part) = 0;
};

/// Opens the module libbaton_NAME.so beside the program (or in BATON_MODULE_PATH) and makes its backend. The error
/// says in a sentence what is missing: the module, the device or its driver.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);

/// Names of the modules that can be found, for --version.
std::vector<std::string> backend_names();

/// What a module exports, under the name "baton_make_backend".
using MakeBackendFunction = Result<std::unique_ptr<Backend>> (*)(const BackendOptions& options);

}  // namespace baton
