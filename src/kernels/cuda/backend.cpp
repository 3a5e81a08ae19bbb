/// The CUDA backend: memory and steps of one device, and one file for each operation.
#include "kernels/cuda/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include <baton_interface.h>
#include <fmt/format.h>

#include "kernels/cuda/attention/latent/latent.h"
#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/attention/merge/merge.h"
#include "kernels/cuda/attention/wide/wide.h"
#include "kernels/cuda/device/architecture.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/heads/head_matmul.h"
#include "kernels/cuda/kv/kv_storage.h"
#include "kernels/cuda/ranks/collectives.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sampling/parts.h"
#include "kernels/cuda/states/state_storage.h"
#include "kernels/cuda/states/states.h"
#include "ranks/rank_group.h"

namespace baton::cuda {
namespace {

/// Step memory before reserve_steps, and size of the pinned memory for uploads.
constexpr std::size_t kFirstStepBytes = 1 << 20;
/// Bound of the biases and token counts of all samples in a step.
constexpr std::int32_t kOriginals = kMaxListEntries;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;
};

/// In bytes, of the calling thread's current device.
DeviceMemory memory_of(const Device&) {
  DeviceMemory memory;
  check_cuda(cudaMemGetInfo(&memory.free, &memory.total), "cudaMemGetInfo");
  return memory;
}

/// An attribute of a device; 0 if its driver does not know the attribute.
int attribute_of(int ordinal, cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, ordinal) == cudaSuccess) return value;
  cudaGetLastError();  // clears the error of the failed query, so that the next launch does not report it
  return 0;
}

Result<int> count_devices() {
  int n_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&n_devices);
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    return fail(ErrorCode::unavailable, "no NVIDIA driver is loaded (libcuda.so.1): the CUDA backend needs one", "device");
  if (error == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
    return fail(ErrorCode::unavailable,
                fmt::format("the NVIDIA driver knows CUDA up to {}; this build needs a driver for {}", version_text(driver),
                            version_text(runtime)),
                "device");
  if (error != cudaSuccess)
    return fail(ErrorCode::unavailable, fmt::format("no CUDA device can be used: {}", cudaGetErrorString(error)), "device");
  return n_devices;
}

/// Selects device `ordinal` and describes it; its stream does not exist yet.
Result<Device> describe(int ordinal) {
  BATON_TRY(const int n_devices, count_devices());
  if (ordinal < 0 || ordinal >= n_devices)
    return fail(ErrorCode::invalid_request,
                fmt::format("CUDA device {} does not exist: this machine has {}, counted from 0", ordinal, n_devices),
                "device");
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
  if (error == cudaSuccess) error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context; fails if the device is in exclusive use
  if (error != cudaSuccess)
    return fail(ErrorCode::unavailable, fmt::format("CUDA device {} cannot be used: {}", ordinal, cudaGetErrorString(error)),
                "device");
  Device device;
  device.ordinal = ordinal;
  const int compute_capability = 10 * properties.major + properties.minor;
  device.n_multiprocessors = properties.multiProcessorCount;
  device.l2_bytes = properties.l2CacheSize;
  device.figures = {compute_capability, device.n_multiprocessors, attribute_of(ordinal, cudaDevAttrClockRate),
                    attribute_of(ordinal, cudaDevAttrMemoryClockRate), attribute_of(ordinal, cudaDevAttrGlobalMemoryBusWidth)};
  device.name = properties.name;
  if (compute_capability < kOldestArchitecture)
    return fail(ErrorCode::unsupported,
                fmt::format("{} has compute capability {}.{}; the CUDA backend needs 8.0 or more", device.name,
                            properties.major, properties.minor),
                "device");
  BATON_TRY(device.compute_capability, choose_architecture(compute_capability, std::getenv("BATON_CUDA_ARCH")));
  device.max_shared_bytes = std::min(properties.sharedMemPerBlockOptin, most_shared_bytes(device.compute_capability));
  return device;
}

class CudaCapturedGraph final : public CapturedGraph {
 public:
  CudaCapturedGraph(const Device& device, const Collectives* collectives, cudaGraphExec_t graph)
      : device_(device), collectives_(collectives), graph_(graph) {}
  ~CudaCapturedGraph() override { cudaGraphExecDestroy(graph_); }
  CudaCapturedGraph(const CudaCapturedGraph&) = delete;
  CudaCapturedGraph& operator=(const CudaCapturedGraph&) = delete;
  void replay() override {
    if (collectives_ != nullptr && collectives_->is_aborted()) return;  // the graph's communicator is gone
    check_cuda(cudaSetDevice(device_.ordinal), "cudaSetDevice");
    check_cuda(cudaGraphLaunch(graph_, device_.stream), "cudaGraphLaunch");
  }

 private:
  const Device& device_;
  const Collectives* collectives_;
  cudaGraphExec_t graph_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CudaBackend::make(const BackendOptions& options) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend);
  BATON_TRY_VOID(backend->open(options));
  return backend;
}

Result<void> CudaBackend::open(const BackendOptions& options) {
  if (options.attention_blocks < 0)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} blocks of attention: must be 0 (as many as fit) or more", options.attention_blocks));
  batch_invariant_ = options.batch_invariant;
  BATON_TRY(device_, describe(options.device));
  check_cuda(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check_cuda(cudaEventCreate(&timing_begin_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&timing_end_), "cudaEventCreate");
  BATON_TRY_VOID(allocate_step(kFirstStepBytes));
  for (Staging& staging : staging_) {
    check_cuda(cudaEventCreateWithFlags(&staging.was_read, cudaEventDisableTiming), "cudaEventCreate");
    BATON_TRY(staging.data, pinned_memory(kFirstStepBytes, "a step"));
    staging.size_bytes = kFirstStepBytes;
  }
  const int most_blocks = device_.n_multiprocessors * attention_blocks_a_multiprocessor(device_);
  if (options.attention_blocks > most_blocks)
    return fail(ErrorCode::invalid_request, fmt::format("{} blocks of attention: {} holds {} at once", options.attention_blocks,
                                                        device_.name, most_blocks));
  attention_blocks_ = options.attention_blocks > 0 ? options.attention_blocks : most_blocks;
  BATON_TRY(std::byte * originals, device_memory(kOriginals * sizeof(float), "the logits that sampling keeps"));
  BATON_TRY(std::byte * parts, device_memory(kSampleParts * kPartBytes, "the most likely tokens of parts of rows"));
  sampling_ = {reinterpret_cast<float*>(originals), kOriginals, parts};
  BATON_TRY(gemms_, Gemms::make(device_, options.batch_invariant));
  schemes_ = std::make_unique<SchemeGemm>(device_, *gemms_->cublas, std::span(gemms_->scratch, Gemms::kScratchBytes),
                                          options.batch_invariant);
  if (options.ranks != nullptr && options.ranks->world_size() > 1) {
    BATON_TRY(collectives_, Collectives::make(device_, options.ranks, batch_invariant_));
  }
  synchronize();
  return {};
}

CudaBackend::~CudaBackend() {
  if (device_.stream == nullptr) return;
  cudaSetDevice(device_.ordinal);
  wait_for_stream(collectives_.get(), device_, "the backend's end");
  collectives_.reset();
  schemes_.reset();
  gemms_.reset();
  cudaFree(sampling_.originals);
  cudaFree(sampling_.parts);
  cudaFree(step_);
  cudaFree(chunk_states_);
  cudaFree(chunk_memory_.data());
  for (const Staging& staging : staging_) {
    cudaFreeHost(staging.data);
    if (staging.was_read != nullptr) cudaEventDestroy(staging.was_read);
  }
  if (timing_begin_ != nullptr) cudaEventDestroy(timing_begin_);
  if (timing_end_ != nullptr) cudaEventDestroy(timing_end_);
  cudaStreamDestroy(device_.stream);
}

const Device& CudaBackend::device() const {
  check_cuda(cudaSetDevice(device_.ordinal), "cudaSetDevice");
  return device_;
}

BackendInfo CudaBackend::info() const {
  BackendInfo info;
  info.name = "cuda";
  info.device =
      fmt::format("{}, {} multiprocessors, {} GiB", device_.name, device_.n_multiprocessors, memory_of(device()).total >> 30);
  info.features = fmt::format("sm_{}", device_.compute_capability);
  info.memory_bytes = static_cast<std::int64_t>(memory_of(device()).total);
  if (collectives_ != nullptr) {
    info.rank = collectives_->rank();
    info.world_size = collectives_->world_size();
  }
  return info;
}

BackendCapabilities CudaBackend::capabilities() const {
  return {.has_bf16_matmul = true,
          .has_f16_matmul = true,
          .has_batch_invariant = true,
          .is_asynchronous = true,
          .rounds_matmul_outputs = true,
          .gains_by_f8_rows = device_.compute_capability == 90,
          .has_recurrent_layers = true,
          .has_gated_conv = true,
          .has_mamba2 = true,
          .deals_pairs = true};
}

BackendTuning CudaBackend::tuning() const {
  const DeviceRates rates = rates_of(device_.figures);
  BackendTuning tuning;
  AttentionCosts& costs = tuning.attention_costs;
  costs.memory_bytes_per_us = rates.memory_bytes_per_us;
  costs.cache_bytes_per_us = rates.cache_bytes_per_us;
  costs.cache_bytes = device_.l2_bytes;
  costs.flops_per_us = rates.flops_per_us;
  costs.few_queries = 32;
  costs.query_granule = 16;
  costs.conversion_ratio = 1.7;  // on an H200 and an H100: bench/results/h200-fp8.md
  costs.partial_bytes_per_us = rates.partial_bytes_per_us;
  // Fixed time of an item and of a merging launch, measured on an H200: these latencies are similar on all devices.
  costs.item_us = 3.0;
  costs.merge_us = 4.5;
  costs.relay_us = 2.0;
  costs.n_workers = attention_blocks_;
  costs.row_tile_queries = kAttentionTileRows;
  if (has_wide_attention(device())) {
    LargerTiles& wide = costs.larger_tiles[0];
    wide.costs.row_tile_queries = kWideTileRows;
    wide.costs.n_workers = wide_attention_blocks(attention_blocks_);
    wide.costs.flops_per_us = 1.6 * rates.flops_per_us;  // bench/results/h200-many-rows.md
    wide.head_dims = {64, 128};
    wide.max_element_bytes = 2;
    // The other kernel converts a key of 8 bits for each 64 query rows. Over 16 bits two kernels save time in few cases. This
    // and the following: bench/results/h200-fp8.md.
    wide.max_joint_element_bytes = 1;
    wide.costs.conversion_ratio = 1.25;
    wide.smaller_ratio = 1.9;
    wide.launch_us = 7.0;
    wide.least_gain = 0.235;
  }
  // One block a multiprocessor; an item loads all its queries before the first key. bench/results/latent-attention.md.
  LatentTiles& latent = costs.latent_tiles;
  latent.costs.row_tile_queries = kLatentTileRows;
  latent.costs.n_workers = device().n_multiprocessors;
  latent.costs.flops_per_us = 1.2 * rates.flops_per_us;
  latent.query_granule = kLatentTileRows;
  latent.item_us = 5.0;
  costs.min_piece = 256;  // this and the following: bench/results/step-bytes.md
  costs.min_piece_of_long = 128;
  costs.long_run = 2048;
  costs.head_by_head = false;
  tuning.max_captured_rows = 512;
  return tuning;
}

std::int64_t CudaBackend::free_memory_bytes() const { return static_cast<std::int64_t>(memory_of(device()).free); }

Result<Buffer> CudaBackend::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return Buffer{};
  device();
  BATON_TRY(std::byte* const data, device_memory(size_bytes, "a buffer"));
  return Buffer(data, size_bytes, [](std::byte* address, std::size_t) { cudaFree(address); });
}

Result<Buffer> CudaBackend::allocate_host(std::size_t size_bytes) {
  device();
  BATON_TRY(std::byte* const data, pinned_memory(size_bytes, "a buffer"));
  return Buffer(data, size_bytes, [](std::byte* address, std::size_t) { cudaFreeHost(address); });
}

void CudaBackend::copy_from_host(TensorView to, ConstTensorView host) {
  check(to.size_bytes() == host.size_bytes(), "copy_from_host: sizes differ");
  if (host.size_bytes() == 0) return;
  check_cuda(cudaMemcpyAsync(to.data, host.data, host.size_bytes(), cudaMemcpyHostToDevice, device().stream), "copy_from_host");
  wait_for_stream(collectives_.get(), device_, "copy_from_host");
}

void CudaBackend::copy_to_host(TensorView host, ConstTensorView from) {
  check(from.size_bytes() == host.size_bytes(), "copy_to_host: sizes differ");
  if (host.size_bytes() == 0) return;
  check_cuda(cudaMemcpyAsync(host.data, from.data, host.size_bytes(), cudaMemcpyDeviceToHost, device().stream), "copy_to_host");
  wait_for_stream(collectives_.get(), device_, "copy_to_host");
}

Result<std::unique_ptr<AsyncReadback>> CudaBackend::make_readback(std::size_t size_bytes) {
  return cuda::make_readback(device(), collectives_.get(), readbacks_, size_bytes);
}

Result<std::unique_ptr<AsyncUpload>> CudaBackend::make_upload(std::size_t size_bytes) {
  return cuda::make_upload(device(), collectives_.get(), size_bytes);
}

Result<void> CudaBackend::allocate_step(std::size_t size_bytes) {
  BATON_TRY(std::byte * larger, device_memory(size_bytes, "the step buffer"));
  if (step_ != nullptr) {
    synchronize();
    check_cuda(cudaFree(step_), "cudaFree");
  }
  step_ = larger;
  step_bytes_ = size_bytes;
  return {};
}

Result<void> CudaBackend::reserve_steps(std::size_t size_bytes) {
  device();
  if (size_bytes > step_bytes_) BATON_TRY_VOID(allocate_step(size_bytes));
  is_step_reserved_ = true;
  return {};
}

StepView CudaBackend::upload_step(const StepInput& step) {
  const std::span<const std::byte> bytes = step.bytes();
  if (bytes.size() > step_bytes_) {
    check(!is_step_reserved_, "upload_step: the step is larger than the room reserved for steps");
    device();
    const auto made = allocate_step(std::max(bytes.size(), 2 * step_bytes_));
    check(made.has_value(), [&] { return made.error().message; });
  }
  Staging& staging = staging_[n_uploads_++ % staging_.size()];
  device();
  wait_for_event(collectives_.get(), staging.was_read, "upload_step");  // the upload before the last has been read
  if (staging.size_bytes < bytes.size()) {
    check_cuda(cudaFreeHost(staging.data), "cudaFreeHost");
    staging.size_bytes = std::max(bytes.size(), 2 * staging.size_bytes);
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&staging.data), staging.size_bytes), "cudaMallocHost");
  }
  std::memcpy(staging.data, bytes.data(), bytes.size());
  check_cuda(cudaMemcpyAsync(step_, staging.data, bytes.size(), cudaMemcpyHostToDevice, device_.stream), "upload_step");
  check_cuda(cudaEventRecord(staging.was_read, device_.stream), "upload_step");
  return {reinterpret_cast<const StepHeader*>(staging.data), step_};
}

void CudaBackend::synchronize() { wait_for_stream(collectives_.get(), device(), "synchronize"); }

Result<std::unique_ptr<CapturedGraph>> CudaBackend::capture(std::function<void()> operations) {
  check_cuda(cudaStreamBeginCapture(device().stream, cudaStreamCaptureModeRelaxed), "record");
  operations();
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(device_.stream, &graph), "record");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  check_cuda(cudaGraphDestroy(graph), "record");
  if (error != cudaSuccess) {
    cudaGetLastError();
    return fail(ErrorCode::unavailable, fmt::format("a CUDA graph cannot be made: {}", cudaGetErrorString(error)), "device");
  }
  check_cuda(cudaGraphUpload(executable, device_.stream), "record");
  return std::make_unique<CudaCapturedGraph>(device_, collectives_.get(), executable);
}

double CudaBackend::time_us(const std::function<void()>& operations) {
  check_cuda(cudaEventRecord(timing_begin_, device().stream), "time_us");
  operations();
  check_cuda(cudaEventRecord(timing_end_, device_.stream), "time_us");
  wait_for_event(collectives_.get(), timing_end_, "time_us");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, timing_begin_, timing_end_), "time_us");
  return 1e3 * static_cast<double>(milliseconds);
}

Result<std::unique_ptr<PackedExperts>> CudaBackend::pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                                 const ReadExpert& read) {
  return cuda::pack_experts(device(), std::span(gemms_->scratch, Gemms::kScratchBytes), shape, dtype, name, read);
}

Result<std::unique_ptr<PackedHeads>> CudaBackend::pack_heads(const ConstTensorView& weights, std::string_view name) {
  return cuda::pack_heads(device(), weights, name);
}

std::int64_t CudaBackend::kv_block_bytes(const KvShape& shape) const { return kv_layout(shape).block_bytes() * shape.n_layers; }

Result<std::unique_ptr<StateStorage>> CudaBackend::make_state_storage(const StateShape& shape) {
  BATON_TRY(std::unique_ptr<StateStorage> storage, CudaStateStorage::make(device(), shape));
  const std::size_t n_bytes = batch_invariant_ ? 0 : chunk_memory_bytes(device_, shape);
  if (n_bytes > 0 && chunk_memory_.empty()) {
    BATON_TRY(std::byte * data, device_memory(n_bytes, "the chunks of recurrent layers"));
    chunk_memory_ = {data, n_bytes};
  }
  return storage;
}

void CudaBackend::resolve_rows(const ResolveRowsArgs& args) { cuda::resolve_rows(device(), args); }
void CudaBackend::embedding(const EmbeddingArgs& args) { cuda::embedding(device(), args); }
void CudaBackend::rms_norm(const RmsNormArgs& args) { cuda::rms_norm(device(), args); }
void CudaBackend::layer_norm(const LayerNormArgs& args) { cuda::layer_norm(device(), args); }
void CudaBackend::gather_rows(const GatherRowsArgs& args) { cuda::gather_rows(device(), args); }
void CudaBackend::rope_append(const RopeAppendArgs& args) { cuda::rope_append(device(), args); }
void CudaBackend::norm_columns(const NormColumnsArgs& args) { cuda::norm_columns(device(), args); }
void CudaBackend::head_matmul(const HeadMatmulArgs& args) { cuda::head_matmul(device(), args); }
void CudaBackend::latent_append(const LatentAppendArgs& args) { cuda::latent_append(device(), args); }
void CudaBackend::attention_merge(const AttentionMergeArgs& args) { cuda::attention_merge(device(), args, batch_invariant_); }
void CudaBackend::short_conv(const ShortConvArgs& args) { cuda::short_conv(device(), args); }
void CudaBackend::gated_delta_rule(const GatedDeltaRuleArgs& args) { cuda::gated_delta_rule(device(), args, chunk_memory_); }
void CudaBackend::mamba2_scan(const Mamba2ScanArgs& args) { cuda::mamba2_scan(device(), args, chunk_memory_); }
void CudaBackend::gated_norm(const GatedNormArgs& args) { cuda::gated_norm(device(), args); }
void CudaBackend::sigmoid_gate(const SigmoidGateArgs& args) { cuda::sigmoid_gate(device(), args); }
void CudaBackend::route_experts(const RouteExpertsArgs& args) { cuda::route_experts(device(), args); }
void CudaBackend::grouped_matmul(const GroupedMatmulArgs& args) { cuda::grouped_matmul(device(), args, batch_invariant_); }
void CudaBackend::combine_experts(const CombineExpertsArgs& args) { cuda::combine_experts(device(), args); }
void CudaBackend::activation(const ActivationArgs& args) { cuda::activation(device(), args); }
void CudaBackend::gated_activation(const GatedActivationArgs& args) { cuda::gated_activation(device(), args); }
void CudaBackend::scale_logits(const ScaleLogitsArgs& args) { cuda::scale_logits(device(), args); }
void CudaBackend::sample(const SampleArgs& args) { cuda::sample(device(), sampling_, args); }
void CudaBackend::all_reduce(TensorView x) { cuda::all_reduce(device(), collectives_.get(), x); }
void CudaBackend::all_gather(const AllGatherArgs& args) { cuda::all_gather(device(), collectives_.get(), args); }

}  // namespace baton::cuda

extern "C" baton::Result<std::unique_ptr<baton::Backend>> baton_make_backend(const baton::BackendOptions& options) {
  return baton::cuda::CudaBackend::make(options);
}
extern "C" const char* baton_backend_interface() { return baton::kBackendInterface; }
