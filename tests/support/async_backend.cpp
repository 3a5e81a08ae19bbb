/// The queue, its operations, and the overwriting of memory that no caller may rely on.
#include "support/async_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "engine/step/draft_pass.h"
#include "kernels/ops.h"

namespace baton::testing {
namespace {

constexpr int kNothing = 0xff;  ///< a byte of memory without contents: NaN in every float dtype
/// Room for steps before reserve_steps is called.
constexpr std::size_t kStepBytes = 1 << 20;

}  // namespace

/// Copies when its turn comes; the copy is visible when it is waited for.
class AsyncBackend::Readback final : public AsyncReadback {
 public:
  Readback(AsyncBackend& backend, std::size_t size_bytes) : backend_(backend), arrived_(size_bytes), shown_(size_bytes) {}
  ~Readback() override {
    if (is_pending_) backend_.run_until(serial_);
  }
  void enqueue(ConstTensorView device) override {
    check(!is_pending_, "AsyncReadback: enqueued again before anybody waited");
    check(backend_.captured_ == nullptr, "AsyncReadback: enqueued while operations are captured");
    n_bytes_ = device.size_bytes();
    check(n_bytes_ <= arrived_.size(), "AsyncReadback: more than it was made for");
    std::memset(shown_.data(), kNothing, shown_.size());
    backend_.enqueue([this, device] {
      if (device.size_bytes() > 0) std::memcpy(arrived_.data(), device.data, device.size_bytes());
    });
    serial_ = backend_.n_enqueued_;
    is_pending_ = true;
    was_enqueued_ = true;
  }
  std::span<const std::byte> wait() override {
    check(was_enqueued_, "AsyncReadback: nothing was enqueued to wait for");
    if (std::exchange(is_pending_, false)) {
      backend_.run_until(serial_);
      std::copy_n(arrived_.begin(), n_bytes_, shown_.begin());
    }
    return {shown_.data(), n_bytes_};
  }

 private:
  AsyncBackend& backend_;
  std::vector<std::byte> arrived_;
  std::vector<std::byte> shown_;
  std::size_t n_bytes_ = 0;
  std::uint64_t serial_ = 0;
  bool is_pending_ = false;
  bool was_enqueued_ = false;
};

/// The device's copy arrives when its turn comes. Then the host's memory is overwritten: no caller may rely on it.
class AsyncBackend::HostUpload final : public AsyncUpload {
 public:
  HostUpload(AsyncBackend& backend, std::size_t size_bytes)
      : backend_(backend),
        host_(size_bytes, static_cast<std::byte>(kNothing)),
        device_(size_bytes, static_cast<std::byte>(kNothing)) {}
  ~HostUpload() override { backend_.run_until(serial_); }
  std::span<std::byte> host() override {
    backend_.run_until(serial_);
    return host_;
  }
  void enqueue(std::size_t n_bytes) override {
    check(backend_.captured_ == nullptr, "AsyncUpload: enqueued while operations are captured");
    check(n_bytes <= host_.size(), "AsyncUpload: more than it was made for");
    backend_.enqueue([this, n_bytes] {
      std::ranges::fill(device_, static_cast<std::byte>(kNothing));
      std::copy_n(host_.begin(), n_bytes, device_.begin());
      std::ranges::fill(host_, static_cast<std::byte>(kNothing));
    });
    serial_ = backend_.n_enqueued_;
  }
  const std::byte* device() const override { return device_.data(); }

 private:
  AsyncBackend& backend_;
  std::vector<std::byte> host_;
  std::vector<std::byte> device_;
  std::uint64_t serial_ = 0;  ///< of the last copy
};

class AsyncBackend::Graph final : public CapturedGraph {
 public:
  Graph(AsyncBackend& backend, std::vector<Operation> operations, std::int32_t n_rows)
      : backend_(backend), operations_(std::move(operations)), n_rows_(n_rows) {}
  void replay() override {
    check(backend_.captured_ == nullptr, "CapturedGraph: replayed while operations are captured");
    ++backend_.n_replays_;
    for (const Operation& operation : operations_)
      backend_.enqueue([backend = &backend_, operation, n_rows = n_rows_] {
        Moment moment = backend->now();
        moment.is_replay = true;
        moment.captured_rows = n_rows;
        operation(moment);
      });
  }

 private:
  AsyncBackend& backend_;
  std::vector<Operation> operations_;
  std::int32_t n_rows_;
};

/// The CPU's storage. Host accesses wait for the operations so far, as on a device.
class AsyncBackend::Storage final : public KvStorage {
 public:
  Storage(AsyncBackend& backend, std::unique_ptr<KvStorage> inner)
      : KvStorage(inner->shape()),
        backend_(backend),
        inner_(std::move(inner)),
        nothing_(static_cast<std::size_t>(shape().block_bytes()), static_cast<std::byte>(kNothing)),
        is_overwritten_(static_cast<std::size_t>(shape().n_blocks), 1) {
    inner_->fill_bytes(kNothing);
    backend_.storages_.push_back(this);
  }
  ~Storage() override { std::erase(backend_.storages_, this); }

  void copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) override {
    backend_.synchronize();
    inner_->copy_blocks(from, to);
    for (const BlockId block : to) is_overwritten_[static_cast<std::size_t>(block.value)] = 0;
  }
  void export_block(BlockId block, TensorView out) const override {
    backend_.synchronize();
    inner_->export_block(block, out);
  }
  void import_block(BlockId block, ConstTensorView in) override {
    backend_.synchronize();
    inner_->import_block(block, in);
    is_overwritten_[static_cast<std::size_t>(block.value)] = 0;
  }
  void save_block(BlockId block, std::byte* host) const override {
    backend_.enqueue([this, block, host] { inner_->save_block(block, host); });
  }
  void load_block(BlockId block, const std::byte* host) override {
    overwrite(block);
    backend_.enqueue([this, block, host] { inner_->load_block(block, host); });
    is_overwritten_[static_cast<std::size_t>(block.value)] = 0;
  }
  void fill_bytes(std::uint8_t value) override {
    backend_.synchronize();
    inner_->fill_bytes(value);
  }

  KvStorage* inner() const { return inner_.get(); }
  /// A step stores a key in the block, at its first position or at a later one.
  void write(BlockId block, bool begins) {
    if (begins) overwrite(block);
    is_overwritten_[static_cast<std::size_t>(block.value)] = 0;
  }
  /// Fills the block with 0xff after the operations so far.
  void overwrite(BlockId block) {
    if (std::exchange(is_overwritten_[static_cast<std::size_t>(block.value)], 1) != 0) return;
    ++backend_.n_blocks_overwritten_;
    backend_.enqueue([this, block] {
      inner_->import_block(block, {nothing_.data(), DType::u8, {static_cast<std::int64_t>(nothing_.size())}});
    });
  }

 private:
  AsyncBackend& backend_;
  std::unique_ptr<KvStorage> inner_;
  std::vector<std::byte> nothing_;
  std::vector<std::uint8_t> is_overwritten_;
};

/// Fills a slot that a run writes and does not read with 0xff, before its step, and slots that the engine has freed.
class AsyncBackend::States final : public StateStorage {
 public:
  States(AsyncBackend& backend, std::unique_ptr<StateStorage> inner)
      : StateStorage(inner->shape()), backend_(backend), inner_(std::move(inner)) {
    nothing_.assign(static_cast<std::size_t>(shape().slot_bytes()), static_cast<std::byte>(kNothing));
    is_overwritten_.assign(static_cast<std::size_t>(shape().n_slots), 1);
    inner_->fill_bytes(kNothing);
    backend_.states_ = this;
  }
  ~States() override { backend_.states_ = nullptr; }

  void export_slot(std::int32_t slot, TensorView out, int first_layer) const override {
    backend_.synchronize();
    inner_->export_slot(slot, out, first_layer);
  }
  void import_slot(std::int32_t slot, ConstTensorView in, int first_layer) override {
    backend_.synchronize();
    is_overwritten_[static_cast<std::size_t>(slot)] = 0;
    inner_->import_slot(slot, in, first_layer);
  }
  void save_slot(std::int32_t slot, std::byte* host) const override {
    backend_.enqueue([this, slot, host] { inner_->save_slot(slot, host); });
  }
  void load_slot(std::int32_t slot, const std::byte* host) override {
    write(slot, /*begins=*/true);
    backend_.enqueue([this, slot, host] { inner_->load_slot(slot, host); });
  }
  void fill_bytes(std::uint8_t value) override {
    backend_.synchronize();
    inner_->fill_bytes(value);
  }

  StateStorage* inner() const { return inner_.get(); }
  /// A run or a copy writes the slot. `begins`: without reading it.
  void write(std::int32_t slot, bool begins) {
    if (begins) overwrite(slot);
    is_overwritten_[static_cast<std::size_t>(slot)] = 0;
  }
  /// Fills the slot with 0xff after the operations so far.
  void overwrite(std::int32_t slot) {
    if (std::exchange(is_overwritten_[static_cast<std::size_t>(slot)], 1) != 0) return;
    ++backend_.n_states_overwritten_;
    backend_.enqueue([this, slot] {
      inner_->import_slot(slot, {nothing_.data(), DType::f32, {static_cast<std::int64_t>(nothing_.size() / sizeof(float))}}, 0);
    });
  }

 private:
  AsyncBackend& backend_;
  std::unique_ptr<StateStorage> inner_;
  std::vector<std::byte> nothing_;
  std::vector<std::uint8_t> is_overwritten_;
};

Result<std::unique_ptr<AsyncBackend>> AsyncBackend::make(const BackendOptions& options, Pace pace, std::uint32_t seed) {
  BATON_TRY(std::unique_ptr<Backend> inner, make_backend("cpu", options));
  return std::unique_ptr<AsyncBackend>(new AsyncBackend(std::move(inner), pace, seed));
}

AsyncBackend::AsyncBackend(std::unique_ptr<Backend> inner, Pace pace, std::uint32_t seed)
    : inner_(std::move(inner)), pace_(pace), rng_(seed), step_(kStepBytes, static_cast<std::byte>(kNothing)) {}

AsyncBackend::~AsyncBackend() { synchronize(); }

void AsyncBackend::hold() {
  const std::scoped_lock lock(mutex_);
  n_allowed_ = 0;
}

void AsyncBackend::let_run(std::uint64_t n) {
  const std::scoped_lock lock(mutex_);
  if (n_allowed_ != kNoLimit) n_allowed_ += n;
  is_waited_for_ = is_waited_for_ && n_allowed_ == 0;  // a waiter that may continue may not have woken up yet
  allowed_more_.notify_all();
}

void AsyncBackend::release() {
  const std::scoped_lock lock(mutex_);
  n_allowed_ = kNoLimit;
  is_waited_for_ = false;
  allowed_more_.notify_all();
}

bool AsyncBackend::is_waited_for() const {
  const std::scoped_lock lock(mutex_);
  return is_waited_for_;
}

Result<void> AsyncBackend::may_fail() {
  check(captured_ == nullptr, "AsyncBackend: memory is asked for while operations are captured");
  if (n_calls_until_failure_ >= 0 && n_calls_until_failure_-- == 0)
    return fail(ErrorCode::out_of_memory, "the test lets this call fail");
  return {};
}

void AsyncBackend::enqueue(std::function<void()> work) {
  queue_.push_back(std::move(work));
  ++n_enqueued_;
  run_some();
}

/// Adds an operation to the queue, or to the graph that is being captured.
void AsyncBackend::launch(Operation operation) {
  if (captured_ != nullptr) {
    captured_->push_back(std::move(operation));
    return;
  }
  enqueue([this, operation = std::move(operation)] { operation(now()); });
}

bool AsyncBackend::take_permission(bool waits) {
  std::unique_lock lock(mutex_);
  if (waits && n_allowed_ == 0) {
    is_waited_for_ = true;
    allowed_more_.wait(lock, [this] { return n_allowed_ > 0; });
    is_waited_for_ = false;
  }
  if (n_allowed_ == 0) return false;
  if (n_allowed_ != kNoLimit) --n_allowed_;
  return true;
}

/// Runs what the device runs by itself.
void AsyncBackend::run_some() {
  std::size_t n = pace_ == Pace::late ? 0 : queue_.size();
  if (pace_ == Pace::random) n = rng_() % 4 == 0 ? rng_() % (n + 1) : 0;
  for (; n > 0 && take_permission(/*waits=*/false); --n) {
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    ++n_run_;
    work();
  }
}

void AsyncBackend::run_until(std::uint64_t serial) {
  while (n_run_ < serial) {
    take_permission(/*waits=*/true);
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    ++n_run_;
    work();
  }
}

AsyncBackend::Moment AsyncBackend::now() const { return {{reinterpret_cast<const StepHeader*>(step_.data()), step_.data()}}; }

BackendInfo AsyncBackend::info() const {
  BackendInfo info = inner_->info();
  info.device += ", asynchronous test device";
  return info;
}

BackendCapabilities AsyncBackend::capabilities() const {
  BackendCapabilities capabilities = inner_->capabilities();
  capabilities.is_asynchronous = true;
  return capabilities;
}

/// As on CUDA where this affects the engine: decode steps are captured.
BackendTuning AsyncBackend::tuning() const {
  BackendTuning tuning = inner_->tuning();
  tuning.max_captured_rows = 512;
  return tuning;
}

std::int64_t AsyncBackend::free_memory_bytes() const { return inner_->free_memory_bytes(); }

Result<Buffer> AsyncBackend::allocate(std::size_t size_bytes) {
  BATON_TRY_VOID(may_fail());
  BATON_TRY(Buffer buffer, inner_->allocate(size_bytes));
  if (size_bytes > 0) std::memset(buffer.data(), kNothing, size_bytes);
  return buffer;
}

Result<Buffer> AsyncBackend::allocate_host(std::size_t size_bytes) { return allocate(size_bytes); }

void AsyncBackend::copy_from_host(TensorView device, ConstTensorView host) {
  synchronize();
  inner_->copy_from_host(device, host);
}

void AsyncBackend::copy_to_host(TensorView host, ConstTensorView device) {
  synchronize();
  inner_->copy_to_host(host, device);
}

Result<std::unique_ptr<AsyncReadback>> AsyncBackend::make_readback(std::size_t size_bytes) {
  BATON_TRY_VOID(may_fail());
  return std::make_unique<Readback>(*this, size_bytes);
}

Result<std::unique_ptr<AsyncUpload>> AsyncBackend::make_upload(std::size_t size_bytes) {
  BATON_TRY_VOID(may_fail());
  return std::make_unique<HostUpload>(*this, size_bytes);
}

/// Overwrites free blocks before the step can read them.
void AsyncBackend::overwrite_blocks(const StepInput& step) {
  if (free_blocks_) {
    for (std::size_t g = 0; g < storages_.size(); ++g)
      for (const BlockId block : free_blocks_(static_cast<int>(g))) storages_[g]->overwrite(block);
  }
  if (free_states_)
    for (const std::int32_t slot : free_states_()) states_->overwrite(slot);
  const StepView view = step.view();
  if (states_ != nullptr)
    for (const StateRun& run : view.span<StateRun>(SectionKind::state_runs))
      states_->write(run.write_slot, run.read_slot != run.write_slot);
  for (std::size_t g = 0; g < std::min(storages_.size(), static_cast<std::size_t>(view.header->n_groups)); ++g) {
    const auto group = static_cast<int>(g);
    if (view.section(SectionKind::kv_indices, group).offset == 0) continue;  // absent in steps made for capturing
    const std::int32_t block_len = storages_[g]->shape().block_len;
    const bool may_begin = view.header->step != kDraftStep;
    for (const std::int64_t index : view.span<std::int64_t>(SectionKind::kv_indices, group)) {
      const BlockId block{static_cast<std::int32_t>(index / block_len)};
      if (index >= 0) storages_[g]->write(block, may_begin && index % block_len == 0);
    }
  }
}

/// From then on the device's copy of a step stays at one address.
Result<void> AsyncBackend::reserve_steps(std::size_t size_bytes) {
  BATON_TRY_VOID(may_fail());
  synchronize();
  step_.assign(size_bytes, static_cast<std::byte>(kNothing));
  return {};
}

StepView AsyncBackend::upload_step(const StepInput& step) {
  check(captured_ == nullptr, "upload_step: while operations are captured");
  check(step.bytes().size() <= step_.size(), "upload_step: the step is larger than its buffer on the device");
  overwrite_blocks(step);
  if (uploads_.size() >= kValidUploads) {
    Upload& expired = *uploads_[uploads_.size() - kValidUploads];
    run_until(expired.serial);  // the device no longer reads this memory
    std::ranges::fill(expired.bytes, static_cast<std::byte>(kNothing));
  }
  if (uploads_.size() >= kKeptUploads) uploads_.pop_front();
  Upload& upload = *uploads_.emplace_back(std::make_unique<Upload>());
  upload.bytes.assign(step.bytes().begin(), step.bytes().end());
  enqueue([this, upload = &upload] {
    const std::int32_t n_bytes_before = reinterpret_cast<const StepHeader*>(step_.data())->size_bytes;
    std::memset(step_.data(), kNothing, static_cast<std::size_t>(std::max(0, n_bytes_before)));
    std::ranges::copy(upload->bytes, step_.begin());
  });
  upload.serial = n_enqueued_;
  return {reinterpret_cast<const StepHeader*>(upload.bytes.data()), step_.data()};
}

void AsyncBackend::synchronize() {
  check(captured_ == nullptr, "synchronize: while operations are captured");
  run_until(n_enqueued_);
}

Result<std::unique_ptr<CapturedGraph>> AsyncBackend::capture(std::function<void()> operations) {
  BATON_TRY_VOID(may_fail());
  std::vector<Operation> operations_of_graph;
  captured_ = &operations_of_graph;
  operations();
  captured_ = nullptr;
  const std::int32_t n_rows = uploads_.empty() ? 0 : reinterpret_cast<const StepHeader*>(uploads_.back()->bytes.data())->n_rows;
  return std::make_unique<Graph>(*this, std::move(operations_of_graph), n_rows);
}

double AsyncBackend::time_us(const std::function<void()>& operations) {
  synchronize();
  const auto begin = std::chrono::steady_clock::now();
  operations();
  synchronize();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

Result<std::unique_ptr<PackedMatrix>> AsyncBackend::pack_matrix(const StoredMatrix& weight, DType dtype,
                                                                std::string_view name) {
  BATON_TRY_VOID(may_fail());
  return inner_->pack_matrix(weight, dtype, name);
}

Result<std::unique_ptr<PackedExperts>> AsyncBackend::pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                                  const ReadExpert& read) {
  BATON_TRY_VOID(may_fail());
  return inner_->pack_experts(shape, dtype, name, read);
}

Result<std::unique_ptr<PackedHeads>> AsyncBackend::pack_heads(const ConstTensorView& weights, std::string_view name) {
  BATON_TRY_VOID(may_fail());
  return inner_->pack_heads(weights, name);
}

Result<std::unique_ptr<KvStorage>> AsyncBackend::make_kv_storage(const KvShape& shape) {
  BATON_TRY_VOID(may_fail());
  BATON_TRY(std::unique_ptr<KvStorage> inner, inner_->make_kv_storage(shape));
  return std::make_unique<Storage>(*this, std::move(inner));
}

Result<std::unique_ptr<StateStorage>> AsyncBackend::make_state_storage(const StateShape& shape) {
  BATON_TRY_VOID(may_fail());
  BATON_TRY(std::unique_ptr<StateStorage> inner, inner_->make_state_storage(shape));
  return std::make_unique<States>(*this, std::move(inner));
}

void AsyncBackend::resolve_rows(const ResolveRowsArgs& args) {
  launch([this, args](const Moment& moment) {
    ResolveRowsArgs current = args;
    current.step = moment.step;
    moment.narrow(current.token_ids);
    // A captured graph keeps a group's rows at the captured place, however few they are.
    const std::int64_t n_rows = current.token_ids.shape[0];
    std::vector<std::byte> resolved(static_cast<std::size_t>(args.rows.shape[0] * n_rows) * sizeof(TokenRow));
    current.rows = {resolved.data(), DType::u8, {args.rows.shape[0], n_rows, sizeof(TokenRow)}};
    baton::resolve_rows(*inner_, current);
    for (std::int64_t group = 0; group < args.rows.shape[0]; ++group) {
      const TensorView from = current.rows.rows(group, group + 1);
      std::memcpy(args.rows.rows(group, group + 1).data, from.data, from.size_bytes());
    }
  });
}

void AsyncBackend::embedding(const EmbeddingArgs& args) {
  launch([this, args](const Moment& moment) {
    EmbeddingArgs current = args;
    moment.narrow(current.out);
    moment.narrow(current.token_ids);
    baton::embedding(*inner_, current);
  });
}

void AsyncBackend::rms_norm(const RmsNormArgs& args) {
  launch([this, args](const Moment& moment) {
    RmsNormArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.deltas.first);
    moment.narrow(current.deltas.second);
    moment.narrow(current.out);
    moment.narrow(current.out_scales);
    moment.narrow(current.wide_out);
    baton::rms_norm(*inner_, current);
  });
}

void AsyncBackend::layer_norm(const LayerNormArgs& args) {
  launch([this, args](const Moment& moment) {
    LayerNormArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.deltas.first);
    moment.narrow(current.deltas.second);
    moment.narrow(current.out);
    baton::layer_norm(*inner_, current);
  });
}

void AsyncBackend::gather_rows(const GatherRowsArgs& args) {
  launch([this, args](const Moment& moment) {
    GatherRowsArgs current = args;
    current.step = moment.step;
    moment.narrow(current.in);
    moment.narrow(current.out);
    baton::gather_rows(*inner_, current);
  });
}

void AsyncBackend::matmul(const MatmulArgs& args) {
  launch([this, args](const Moment& moment) {
    MatmulArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.out);
    baton::matmul(*inner_, current);
  });
}

void AsyncBackend::rope_append(const RopeAppendArgs& args) {
  launch([this, args](const Moment& moment) {
    RopeAppendArgs current = args;
    current.step = moment.step;
    current.kv = static_cast<Storage*>(args.kv)->inner();
    moment.narrow(current.qkv);
    moment.narrow(current.q);
    moment.narrow(current.rows);
    baton::rope_append(*inner_, current);
  });
}

void AsyncBackend::norm_columns(const NormColumnsArgs& args) {
  launch([this, args](const Moment& moment) {
    NormColumnsArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.out);
    moment.narrow(current.out_scales);
    baton::norm_columns(*inner_, current);
  });
}

void AsyncBackend::head_matmul(const HeadMatmulArgs& args) {
  launch([this, args](const Moment& moment) {
    HeadMatmulArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.out);
    baton::head_matmul(*inner_, current);
  });
}

void AsyncBackend::latent_append(const LatentAppendArgs& args) {
  launch([this, args](const Moment& moment) {
    LatentAppendArgs current = args;
    current.step = moment.step;
    current.kv = static_cast<Storage*>(args.kv)->inner();
    moment.narrow(current.x);
    moment.narrow(current.compressed);
    moment.narrow(current.q);
    moment.narrow(current.rows);
    baton::latent_append(*inner_, current);
  });
}

void AsyncBackend::attention(const AttentionArgs& args) {
  const bool has_partials = args.step.group(args.group).n_partials > 0;
  launch([this, args, has_partials](const Moment& moment) {
    AttentionArgs current = args;
    current.step = moment.step;
    current.kv = static_cast<const Storage*>(args.kv)->inner();
    check(has_partials || moment.step.group(args.group).n_partials == 0,
          "AsyncBackend: attention that was captured without partial states serves a step that has some");
    moment.narrow(current.q);
    moment.narrow(current.out);
    moment.narrow(current.rows);
    baton::attention(*inner_, current);
  });
}

void AsyncBackend::attention_merge(const AttentionMergeArgs& args) {
  launch([this, args](const Moment& moment) {
    AttentionMergeArgs current = args;
    current.step = moment.step;
    moment.narrow(current.out);
    baton::attention_merge(*inner_, current);
  });
}

void AsyncBackend::short_conv(const ShortConvArgs& args) {
  launch([this, args](const Moment& moment) {
    ShortConvArgs current = args;
    current.state.step = moment.step;
    current.state.storage = static_cast<States*>(args.state.storage)->inner();
    moment.narrow(current.x);
    moment.narrow(current.out);
    baton::short_conv(*inner_, current);
  });
}

void AsyncBackend::gated_delta_rule(const GatedDeltaRuleArgs& args) {
  launch([this, args](const Moment& moment) {
    GatedDeltaRuleArgs current = args;
    current.state.step = moment.step;
    current.state.storage = static_cast<States*>(args.state.storage)->inner();
    moment.narrow(current.qkv);
    moment.narrow(current.gates);
    moment.narrow(current.out);
    baton::gated_delta_rule(*inner_, current);
  });
}

void AsyncBackend::mamba2_scan(const Mamba2ScanArgs& args) {
  launch([this, args](const Moment& moment) {
    Mamba2ScanArgs current = args;
    current.state.step = moment.step;
    current.state.storage = static_cast<States*>(args.state.storage)->inner();
    moment.narrow(current.xbc);
    moment.narrow(current.dt);
    moment.narrow(current.out);
    baton::mamba2_scan(*inner_, current);
  });
}

void AsyncBackend::gated_norm(const GatedNormArgs& args) {
  launch([this, args](const Moment& moment) {
    GatedNormArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.gate);
    moment.narrow(current.out);
    moment.narrow(current.out_scales);
    baton::gated_norm(*inner_, current);
  });
}

void AsyncBackend::sigmoid_gate(const SigmoidGateArgs& args) {
  launch([this, args](const Moment& moment) {
    SigmoidGateArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.gate);
    moment.narrow(current.out);
    moment.narrow(current.out_scales);
    baton::sigmoid_gate(*inner_, current);
  });
}

void AsyncBackend::route_experts(const RouteExpertsArgs& args) {
  launch([this, args](const Moment& moment) {
    RouteExpertsArgs current = args;
    current.step = moment.step;
    moment.narrow(current.logits);
    moment.narrow(current.choices);
    baton::route_experts(*inner_, current);
  });
}

void AsyncBackend::grouped_matmul(const GroupedMatmulArgs& args) {
  launch([this, args](const Moment& moment) {
    GroupedMatmulArgs current = args;
    moment.narrow(current.x);
    moment.narrow(current.rows);
    moment.narrow(current.out);
    baton::grouped_matmul(*inner_, current);
  });
}

void AsyncBackend::combine_experts(const CombineExpertsArgs& args) {
  launch([this, args](const Moment& moment) {
    CombineExpertsArgs current = args;
    moment.narrow(current.in);
    moment.narrow(current.choices);
    moment.narrow(current.out);
    moment.narrow(current.shared);
    moment.narrow(current.gate_logits);
    baton::combine_experts(*inner_, current);
  });
}

void AsyncBackend::activation(const ActivationArgs& args) {
  launch([this, args](const Moment& moment) {
    ActivationArgs current = args;
    moment.narrow(current.in);
    moment.narrow(current.out);
    baton::activation(*inner_, current);
  });
}

void AsyncBackend::gated_activation(const GatedActivationArgs& args) {
  launch([this, args](const Moment& moment) {
    GatedActivationArgs current = args;
    moment.narrow(current.gate_up);
    moment.narrow(current.out);
    baton::gated_activation(*inner_, current);
  });
}

void AsyncBackend::gated_matmul(const GatedMatmulArgs& args) {
  launch([this, args](const Moment& moment) {
    GatedMatmulArgs current = args;
    moment.narrow(current.matmul.x);
    moment.narrow(current.matmul.out);
    moment.narrow(current.activation.gate_up);
    moment.narrow(current.activation.out);
    baton::gated_matmul(*inner_, current);
  });
}

void AsyncBackend::scale_logits(const ScaleLogitsArgs& args) {
  launch([this, args](const Moment& moment) {
    ScaleLogitsArgs current = args;
    if (moment.is_replay) current.logits = current.logits.rows(0, moment.step.n_samples());
    baton::scale_logits(*inner_, current);
  });
}

void AsyncBackend::sample(const SampleArgs& args) {
  launch([this, args](const Moment& moment) {
    SampleArgs current = args;
    current.step = moment.step;
    if (moment.is_replay) current.logits = current.logits.rows(0, moment.step.n_samples());
    baton::sample(*inner_, current);
  });
}

// What a replay exchanges between ranks are all rows that it was captured for: the parts of all_gather, and both blocks of a
// parallel layer, lie apart by so many. Nothing reads the rows past the step's.

void AsyncBackend::all_reduce(TensorView x) {
  launch([this, x](const Moment&) { baton::all_reduce(*inner_, x); });
}

void AsyncBackend::all_gather(const AllGatherArgs& args) {
  launch([this, args](const Moment&) { baton::all_gather(*inner_, args); });
}

}  // namespace baton::testing
