/// Runs one step from its input buffer to its results.
#include "engine/step/executor.h"

#include <algorithm>

#include "core/check.h"
#include "engine/request/speculation.h"
#include "kernels/ops.h"

namespace baton {
namespace {

template <class T>
TensorView table_of(const Buffer& buffer, std::int64_t n) {
  return buffer.view(DType::u8, {n, static_cast<std::int64_t>(sizeof(T))});
}

template <class T>
TensorView table_of(std::vector<T>& elements) {
  return {reinterpret_cast<std::byte*>(elements.data()),
          DType::u8,
          {static_cast<std::int64_t>(elements.size()), static_cast<std::int64_t>(sizeof(T))}};
}

}  // namespace

Executor::Executor(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const StepBounds& bounds,
                   std::shared_ptr<RankGroup> ranks)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      bounds_(bounds),
      ranks_(std::move(ranks)),
      is_asynchronous_(backend_->capabilities().is_asynchronous) {}

Executor::~Executor() {
  ranks_.end();
  backend_->synchronize();
}

Result<std::unique_ptr<Executor>> Executor::create(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                                                   const StepBounds& bounds, std::shared_ptr<RankGroup> ranks) {
  check(backend != nullptr && model != nullptr, "Executor: no backend or no model");
  check(ranks == nullptr || (ranks->rank() == 0 && backend->info().world_size == ranks->world_size()),
        "Executor: its backend belongs to another group of ranks, or not to rank 0");
  std::unique_ptr<Executor> executor(new Executor(std::move(backend), std::move(model), bounds, std::move(ranks)));
  executor->ranks_.create(bounds);
  BATON_TRY_VOID(executor->agree(executor->allocate()));
  return executor;
}

/// Waits until all ranks have allocated what they were told to.
Result<void> Executor::agree(const Result<void>& own) {
  BATON_TRY(free_memory_bytes_, ranks_.agree(own, backend_->free_memory_bytes()));
  return {};
}

Result<void> Executor::allocate() {
  BATON_TRY_VOID(backend_->reserve_steps(bounds_.size_bytes()));
  BATON_TRY_VOID(model_->prepare(*backend_, bounds_));
  BATON_TRY(slots_, backend_->allocate(static_cast<std::size_t>(bounds_.max_slots) * sizeof(SlotState)));
  BATON_TRY(results_, backend_->allocate(static_cast<std::size_t>(bounds_.max_samples) * sizeof(SampleResult)));
  for (std::unique_ptr<AsyncReadback>& readback : readbacks_) {
    BATON_TRY(readback, backend_->make_readback(results_.size_bytes()));
  }
  BATON_TRY(masks_, backend_->make_upload(bounds_.masks_bytes()));
  std::vector<SlotState> empty(static_cast<std::size_t>(bounds_.max_slots));
  backend_->copy_from_host(table_of<SlotState>(slots_, bounds_.max_slots), table_of(empty));
  return {};
}

TensorView Executor::slot_table() const { return table_of<SlotState>(slots_, bounds_.max_slots); }

Result<void> Executor::allocate_cache(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype) {
  ranks_.allocate_cache(groups, block_len, dtype);
  return agree(allocate_storages(groups, block_len, dtype));
}

Result<void> Executor::allocate_storages(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype) {
  std::vector<KvShape> shapes = model_->kv_shapes(1, block_len, dtype);
  check(storages_.empty() && shapes.size() == groups.size(),
        "Executor: the cache is allocated twice, or for another number of layer groups than the model has");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    KvShape& shape = shapes[g];
    shape.n_blocks = groups[g].n_blocks;
    BATON_TRY(std::unique_ptr<KvStorage> storage, backend_->make_kv_storage(shape));
    storage_pointers_.push_back(storage.get());
    storages_.push_back(std::move(storage));
  }
  return {};
}

Result<void> Executor::allocate_states(std::int32_t n_slots, std::int32_t n_kept_rows, DType dtype) {
  check(states_ == nullptr && n_slots > 0 && backend_->info().world_size == 1,
        "Executor: states are allocated once, and by one rank");
  StateShape shape = model_->state_shape(n_slots, dtype);
  shape.n_kept_rows = n_kept_rows;
  BATON_TRY(states_, backend_->make_state_storage(shape));
  return {};
}

Result<void> Executor::allocate_tier(std::int32_t n_slots, std::int32_t n_states) {
  check(!storages_.empty() && entry_parts_.empty() && backend_->info().world_size == 1,
        "Executor: a host tier is allocated once, after the cache, and by one rank");
  entry_parts_ = {0};
  for (const auto& storage : storages_)
    entry_parts_.push_back(entry_parts_.back() + static_cast<std::size_t>(backend_->kv_block_bytes(storage->shape())));
  BATON_TRY(tier_, backend_->allocate_host(static_cast<std::size_t>(n_slots) * entry_parts_.back()));
  if (n_states == 0) return {};
  check(states_ != nullptr, "Executor: a host tier of states that a model does not have");
  state_bytes_ = static_cast<std::size_t>(states_->shape().slot_bytes());
  BATON_TRY(tier_states_, backend_->allocate_host(static_cast<std::size_t>(n_states) * state_bytes_));
  return {};
}

Result<void> Executor::allocate_drafts() {
  check(draft_rows_ == nullptr && !storages_.empty() && model_->spec().uses_mtp && backend_->info().world_size == 1,
        "Executor: drafts are allocated once, after the cache, and by one rank");
  const auto n_samples = static_cast<std::size_t>(bounds_.max_samples) * kMaxDraftTokens;
  BATON_TRY(draft_slots_, backend_->allocate(static_cast<std::size_t>(bounds_.max_slots) * sizeof(SlotState)));
  BATON_TRY(draft_results_, backend_->allocate(n_samples * sizeof(SampleResult)));
  BATON_TRY(draft_readback_, backend_->make_readback(draft_results_.size_bytes()));
  BATON_TRY(draft_rows_,
            backend_->make_upload((static_cast<std::size_t>(bounds_.max_rows) + n_samples) * sizeof(std::int32_t)));
  std::vector<SlotState> empty(static_cast<std::size_t>(bounds_.max_slots));
  backend_->copy_from_host(table_of<SlotState>(draft_slots_, bounds_.max_slots), table_of(empty));
  // A token over which the layer did not run has the keys of an earlier use of its block, but never NaN: new memory of a host is 0.
  if (!backend_->capabilities().shares_host_memory)
    for (KvStorage* const storage : storage_pointers_) storage->fill_bytes(0);
  return {};
}

std::span<const SampleResult> Executor::draft(std::span<const DraftPass> passes) {
  check(draft_rows_ != nullptr && in_flight_.empty(),
        "Executor: drafts without memory for them, or after a later step has begun");
  const std::span<std::byte> host = draft_rows_->host();
  std::size_t n_bytes = 0;
  for (const DraftPass& pass : passes) {
    const auto excess = find_excess(pass.input.view(), bounds_);
    check(!excess, [&] { return "Executor: drafts: " + *excess; });
    const std::span<const std::byte> rows = std::as_bytes(std::span(pass.hidden_rows));
    check(n_bytes + rows.size() <= host.size(), "Executor: more rows of drafts than there is memory for");
    std::ranges::copy(rows, host.begin() + static_cast<std::ptrdiff_t>(n_bytes));
    n_bytes += rows.size();
  }
  draft_rows_->enqueue(n_bytes);
  const TensorView slots = table_of<SlotState>(draft_slots_, bounds_.max_slots);
  const TensorView results =
      table_of<SampleResult>(draft_results_, static_cast<std::int64_t>(bounds_.max_samples) * kMaxDraftTokens);
  const std::byte* rows = draft_rows_->device();
  std::int64_t n_results = 0;
  for (const DraftPass& pass : passes) {
    const StepView view = backend_->upload_step(pass.input);
    const ConstTensorView hidden_rows{rows, DType::i32, {static_cast<std::int64_t>(pass.hidden_rows.size())}};
    const TensorView logits = model_->draft(*backend_, view, slots, hidden_rows, storage_pointers_);
    rows += pass.hidden_rows.size() * sizeof(std::int32_t);
    const std::int32_t n_samples = view.n_samples();
    if (n_samples == 0) continue;
    baton::sample(*backend_, {view, logits, slots, results.rows(n_results, n_results + n_samples)});
    n_results += n_samples;
  }
  if (n_results == 0) return {};
  draft_readback_->enqueue(results.rows(0, n_results));
  const std::span<const std::byte> bytes = draft_readback_->wait();
  return {reinterpret_cast<const SampleResult*>(bytes.data()), bytes.size() / sizeof(SampleResult)};
}

Result<std::size_t> Executor::capture_steps(std::int32_t max_rows) {
  check(!storages_.empty() && captured_steps_ == nullptr, "Executor: steps are captured once, when the cache is allocated");
  ranks_.capture_steps(max_rows);
  auto made = CapturedSteps::make(*backend_, *model_, slot_table(), table_of<SampleResult>(results_, bounds_.max_samples),
                                  token_masks(), storage_pointers_, states_.get(),
                                  std::min({max_rows, bounds_.max_rows, bounds_.max_samples}));
  if (made) captured_steps_ = std::move(*made);
  BATON_TRY_VOID(agree(made ? Result<void>() : tl::unexpected(made.error())));
  return captured_steps_->n_graphs();
}

void Executor::copy_state(const TierCopy& copy) {
  check(state_bytes_ > 0, "Executor: a copy of a state without a host tier of states");
  std::byte* const host = tier_states_.data() + static_cast<std::size_t>(copy.slot) * state_bytes_;
  if (copy.kind == TierCopy::Kind::save)
    states_->save_slot(copy.block.value, host);
  else
    states_->load_slot(copy.block.value, host);
}

void Executor::carry_out(std::vector<TierCopy>& copies) {
  for (const TierCopy& copy : copies) {
    if (copy.group == TierCopy::kStates) {
      copy_state(copy);
      continue;
    }
    const auto group = static_cast<std::size_t>(copy.group);
    std::byte* const host = tier_.data() + static_cast<std::size_t>(copy.slot) * entry_parts_.back() + entry_parts_.at(group);
    if (copy.kind == TierCopy::Kind::save)
      storages_[group]->save_block(copy.block, host);
    else
      storages_[group]->load_block(copy.block, host);
  }
  copies.clear();
}

void Executor::copy(std::vector<TierCopy> copies) {
  check(copies.empty() || !entry_parts_.empty(), "Executor: a copy without a host tier");
  waiting_copies_.insert(waiting_copies_.end(), copies.begin(), copies.end());
  if (is_asynchronous_ || in_flight_.empty()) carry_out(waiting_copies_);
}

void Executor::forward(StepInput step) {
  const auto excess = find_excess(step.view(), bounds_);
  check(!excess, [&] { return "Executor: " + *excess; });
  check(!storages_.empty(), "Executor: a step before the cache is allocated");
  check(in_flight_.empty() || in_flight_.back().is_sampled, "Executor: a forward before the sample of the step before");
  check(!is_asynchronous_ || in_flight_.size() < kMaxInFlight, "Executor: more steps in flight than it has buffers for");
  ranks_.forward(step);
  in_flight_.push_back({.input = std::move(step), .copies = std::exchange(waiting_copies_, {})});
  if (is_asynchronous_) enqueue_forward(in_flight_.back());
}

void Executor::sample() {
  ranks_.sample();
  take_sample();
}

void Executor::take_sample() {
  check(!in_flight_.empty() && !in_flight_.back().is_sampled, "Executor: a sample without a forward");
  in_flight_.back().is_sampled = true;
  if (is_asynchronous_) enqueue_sample(in_flight_.back());
}

MaskMemory Executor::masks() {
  check(in_flight_.size() == 1 && !in_flight_.back().is_sampled, "Executor: masks beside the sampling of another step");
  std::byte* const memory = masks_->host().data();
  return {{reinterpret_cast<std::int32_t*>(memory), static_cast<std::size_t>(bounds_.max_masks)},
          {reinterpret_cast<std::uint32_t*>(memory + bounds_.mask_rows_bytes()),
           static_cast<std::size_t>(bounds_.max_masks) * static_cast<std::size_t>(bounds_.mask_words)},
          bounds_.mask_words};
}

void Executor::sample_masked(std::int32_t n_rows) {
  check(in_flight_.size() == 1 && n_rows >= 0 && n_rows <= bounds_.max_masks,
        "Executor: more masks than there is memory for, or beside the sampling of another step");
  const std::span<std::byte> bytes = mask_bytes(n_rows);
  ranks_.sample_masked(n_rows, bytes);
  in_flight_.back().mask_bytes = bytes.size();
  take_sample();
}

std::span<std::byte> Executor::mask_bytes(std::int32_t n_rows) {
  return masks_->host().first(bounds_.mask_rows_bytes() +
                              static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(bounds_.mask_words) * 4);
}

/// At one address for all steps, so that captured graphs find them.
TokenMasks Executor::token_masks() const {
  if (bounds_.max_masks == 0) return {};
  const std::byte* const memory = masks_->device();
  return {{memory, DType::i32, {bounds_.max_masks}},
          {memory + bounds_.mask_rows_bytes(), DType::i32, {bounds_.max_masks, bounds_.mask_words}}};
}

void Executor::enqueue_forward(InFlight& step) {
  step.enqueued = Clock::now();
  step.view = backend_->upload_step(step.input);
  std::optional<TensorView> logits;
  if (captured_steps_ != nullptr) logits = captured_steps_->forward(step.view);
  step.logits = logits ? *logits : model_->forward(*backend_, step.view, slot_table(), storage_pointers_, states_.get());
}

/// Enqueues sampling and the readback of its results.
void Executor::enqueue_sample(InFlight& step) {
  const std::int32_t n_samples = step.view.n_samples();
  const SampleArgs args{step.view, step.logits, slot_table(), table_of<SampleResult>(results_, bounds_.max_samples),
                        token_masks()};
  if (step.mask_bytes > 0) masks_->enqueue(step.mask_bytes);
  const bool is_captured = n_samples > 0 && captured_steps_ != nullptr && captured_steps_->sample(step.view, step.logits);
  if (n_samples > 0 && !is_captured) baton::sample(*backend_, args);
  step.results = readbacks_[n_enqueued_++ % readbacks_.size()].get();
  step.results->enqueue(args.results.rows(0, n_samples));
}

std::span<const SampleResult> Executor::wait() {
  check(!in_flight_.empty() && in_flight_.front().is_sampled, "Executor: wait without a step that was sampled");
  ranks_.wait();
  InFlight& step = in_flight_.front();
  if (!is_asynchronous_) {
    carry_out(step.copies);
    enqueue_forward(step);
    enqueue_sample(step);
  }
  const std::span<const std::byte> bytes = step.results->wait();
  const Clock::time_point now = Clock::now();
  last_step_seconds_ = std::chrono::duration<double>(now - std::max(step.enqueued, last_end_)).count();
  last_end_ = now;
  ended_input_ = std::move(step.input);
  in_flight_.pop_front();
  if (in_flight_.empty()) carry_out(waiting_copies_);
  return {reinterpret_cast<const SampleResult*>(bytes.data()), bytes.size() / sizeof(SampleResult)};
}

}  // namespace baton
