/// The CPU backend: host memory, and one file for each operation.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <baton_interface.h>
#include <fmt/format.h>

#include "core/limits/memory_limit.h"
#include "core/one_line.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/kv/kv_storage.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/schemes/int8.h"
#include "kernels/cpu/states/state_storage.h"
#include "ranks/rank_group.h"

namespace baton::cpu {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "x86-64 processor";
}

/// Ranks of one host share its processors.
int threads_of(const BackendOptions& options) {
  if (options.n_threads > 0 || options.ranks == nullptr) return options.n_threads;
  return std::max(1, n_available_threads() / options.ranks->world_size());
}

class CpuCapturedGraph final : public CapturedGraph {
 public:
  explicit CpuCapturedGraph(std::function<void()> operations) : operations_(std::move(operations)) {}
  void replay() override { operations_(); }

 private:
  std::function<void()> operations_;
};

/// Copies at once, so that later operations may overwrite the source.
class CpuReadback final : public AsyncReadback {
 public:
  explicit CpuReadback(std::size_t size_bytes) : bytes_(size_bytes) {}
  void enqueue(ConstTensorView device) override {
    n_bytes_ = device.size_bytes();
    check(n_bytes_ <= bytes_.size(), "AsyncReadback: more than it was made for");
    if (n_bytes_ > 0) std::memcpy(bytes_.data(), device.data, n_bytes_);
  }
  std::span<const std::byte> wait() override { return {bytes_.data(), n_bytes_}; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t n_bytes_ = 0;
};

/// Operations read the host's memory in place: they have run when the next data are written.
class CpuUpload final : public AsyncUpload {
 public:
  CpuUpload(Buffer memory, std::size_t size_bytes) : memory_(std::move(memory)), size_bytes_(size_bytes) {}
  std::span<std::byte> host() override { return {memory_.data(), size_bytes_}; }
  void enqueue(std::size_t n_bytes) override { check(n_bytes <= size_bytes_, "AsyncUpload: more than it was made for"); }
  const std::byte* device() const override { return memory_.data(); }

 private:
  Buffer memory_;
  std::size_t size_bytes_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CpuBackend::make(const BackendOptions& options) {
  if (options.n_threads < 0)
    return fail(ErrorCode::invalid_request, fmt::format("--threads {}: must be 0 (automatic) or more", options.n_threads),
                "threads");
  BATON_TRY_VOID(Collectives::check_ranks(options.ranks.get()));
  BATON_TRY(const CpuIsa isa, detect_cpu_isa());
  limit_matmul_isa(isa);
  return std::unique_ptr<Backend>(new CpuBackend(isa, threads_of(options), options));
}

BackendInfo CpuBackend::info() const {
  BackendInfo info;
  info.name = "cpu";
  info.device = fmt::format("{}, {}", processor_name(), counted(parallel_.n_threads(), "thread"));
  info.features = to_string(isa_);
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  info.rank = collectives_.rank();
  info.world_size = collectives_.world_size();
  return info;
}

BackendCapabilities CpuBackend::capabilities() const {
  // bench/results/quantised-cpu.md; not measured beside bf16 matmuls.
  const bool gains_by_int8_x = isa_ == CpuIsa::avx512 && has_vnni();
  return {.has_bf16_matmul = isa_ >= CpuIsa::avx512_bf16,
          .has_batch_invariant = true,
          .shares_host_memory = true,
          .has_int8_x = true,
          .gains_by_int8_x = gains_by_int8_x,
          .has_recurrent_layers = true,
          .has_gated_conv = true,
          .has_mamba2 = true};
}

BackendTuning CpuBackend::tuning() const {
  BackendTuning tuning;
  // Per thread, measured on Zen 4 (bench/results/cpu-attention.md): 20 GB/s from memory, 64 GB/s from cache, 200
  // GFLOP/s with bf16 dot products.
  const double n = parallel_.n_threads();
  AttentionCosts& costs = tuning.attention_costs;
  costs.n_workers = parallel_.n_threads();
  costs.memory_bytes_per_us = 20e3 * n;
  costs.cache_bytes_per_us = 64e3 * n;
  costs.flops_per_us = (isa_ >= CpuIsa::avx512_bf16 ? 200e3 : isa_ == CpuIsa::baseline ? 15e3 : 80e3) * n;
  costs.few_queries = 0.15;
  costs.partial_bytes_per_us = 15e3 * n;
  costs.item_us = 0.7;
  costs.row_tile = 64;
  // Matmuls reach their full rate at this many rows, so prefill beside decodes loses nothing by the limit, and a step
  // with decodes takes a tenth of the time of one with 2048 rows (bench/results/schedule.md).
  tuning.prefill_rows = 128;
  return tuning;
}

std::int64_t CpuBackend::free_memory_bytes() const { return free_host_memory(); }

Result<Buffer> CpuBackend::allocate(std::size_t size_bytes) { return allocate_pages(size_bytes); }

void CpuBackend::copy_from_host(TensorView device, ConstTensorView host) {
  check(device.size_bytes() == host.size_bytes(), "copy_from_host: sizes differ");
  if (host.size_bytes() > 0) std::memcpy(device.data, host.data, host.size_bytes());
}

void CpuBackend::copy_to_host(TensorView host, ConstTensorView device) {
  check(device.size_bytes() == host.size_bytes(), "copy_to_host: sizes differ");
  if (host.size_bytes() > 0) std::memcpy(host.data, device.data, host.size_bytes());
}

Result<std::unique_ptr<AsyncReadback>> CpuBackend::make_readback(std::size_t size_bytes) {
  return std::make_unique<CpuReadback>(size_bytes);
}

Result<std::unique_ptr<AsyncUpload>> CpuBackend::make_upload(std::size_t size_bytes) {
  BATON_TRY(Buffer memory, allocate_pages(size_bytes));
  return std::make_unique<CpuUpload>(std::move(memory), size_bytes);
}

/// Steps are read in place, so nothing is allocated. The bound is enforced as on a device.
Result<void> CpuBackend::reserve_steps(std::size_t size_bytes) {
  max_step_bytes_ = size_bytes;
  return {};
}

StepView CpuBackend::upload_step(const StepInput& step) {
  check(step.bytes().size() <= max_step_bytes_, "upload_step: the step is larger than the room reserved for steps");
  return step.view();
}

Result<std::unique_ptr<CapturedGraph>> CpuBackend::capture(std::function<void()> operations) {
  return std::make_unique<CpuCapturedGraph>(std::move(operations));
}

double CpuBackend::time_us(const std::function<void()>& operations) {
  const auto begin = std::chrono::steady_clock::now();
  operations();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

Result<std::unique_ptr<KvStorage>> CpuBackend::make_kv_storage(const KvShape& shape) {
  BATON_TRY(std::unique_ptr<KvStorage> storage, CpuKvStorage::make(shape));
  return storage;
}

std::int64_t CpuBackend::kv_block_bytes(const KvShape& shape) const { return CpuKvStorage::bytes_of_block(shape); }

Result<std::unique_ptr<StateStorage>> CpuBackend::make_state_storage(const StateShape& shape) {
  BATON_TRY(std::unique_ptr<StateStorage> storage, CpuStateStorage::make(shape));
  return storage;
}

void CpuBackend::all_reduce(TensorView x) { collectives_.all_reduce(parallel_, x); }
void CpuBackend::all_gather(const AllGatherArgs& args) { collectives_.all_gather(parallel_, args); }

}  // namespace baton::cpu

extern "C" baton::Result<std::unique_ptr<baton::Backend>> baton_make_backend(const baton::BackendOptions& options) {
  return baton::cpu::CpuBackend::make(options);
}
extern "C" const char* baton_backend_interface() { return baton::kBackendInterface; }
