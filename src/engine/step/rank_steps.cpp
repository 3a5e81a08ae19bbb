/// One message for each call of rank 0's executor.
#include "engine/step/rank_steps.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "engine/step/executor.h"

namespace baton {
namespace {

/// How long the sentence of a broken group may be on its way.
constexpr std::chrono::milliseconds kSentenceTimeout{1000};

/// Of what rank 0 says in words of the loader.
constexpr std::uint64_t kMostWordBytes = std::uint64_t{16} << 20;

enum class RankCommand : std::int32_t {
  load,
  device,
  end,
  create,
  allocate_cache,
  capture_steps,
  forward,
  sample,
  sample_masked,
  wait
};

/// What rank 0 sends; `n_bytes` bytes of its arguments follow.
struct RankMessage {
  RankCommand command = RankCommand::wait;
  std::int32_t number = 0;  ///< allocate_cache: block_len; capture_steps: max_rows; sample_masked: n_rows
  DType dtype = DType::f32;
  std::uint64_t n_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<StepBounds> && std::is_trivially_copyable_v<CacheGroup>);

/// How a rank answers a message of the setup; the error's message follows.
struct RankReply {
  std::int64_t free_memory_bytes = 0;
  std::int32_t has_failed = 0;
  ErrorCode code = ErrorCode::internal;
};

std::vector<std::byte> make_reply(const Result<void>& own, std::int64_t free_memory_bytes) {
  const RankReply reply{free_memory_bytes, own ? 0 : 1, own ? ErrorCode::internal : own.error().code};
  const std::string message = own ? std::string() : own.error().message;
  std::vector<std::byte> bytes(sizeof(reply) + message.size());
  std::memcpy(bytes.data(), &reply, sizeof(reply));
  std::memcpy(bytes.data() + sizeof(reply), message.data(), message.size());
  return bytes;
}

/// Sends a message; a broken group takes none, and its fault is found by the thread that waits for results.
bool pass_on(RankGroup* ranks, RankMessage message, std::span<const std::byte> arguments) {
  if (ranks == nullptr) return false;
  message.n_bytes = arguments.size();
  return ranks->send(std::as_bytes(std::span(&message, 1))) && ranks->send(arguments);
}

std::string sentence_of(const RankGroup& ranks) {
  return ranks.wait_fault(kSentenceTimeout).value_or("a rank has ended its group");
}

tl::unexpected<Error> bad_step(std::string why) {
  return fail(ErrorCode::invalid_data, "rank 0 has sent a step that is none: " + std::move(why));
}

/// Whether the header's and the sections' numbers lie within `bytes` and belong together.
Result<StepView> view_of(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(StepHeader))
    return bad_step(fmt::format("it has {} bytes, and its header {}", bytes.size(), sizeof(StepHeader)));
  const StepView step{reinterpret_cast<const StepHeader*>(bytes.data()), bytes.data()};
  const StepHeader& header = *step.header;
  if (header.size_bytes < 0 || static_cast<std::size_t>(header.size_bytes) != bytes.size())
    return bad_step(fmt::format("it has {} bytes and says {}", bytes.size(), header.size_bytes));
  const std::size_t n_most_groups = (bytes.size() - sizeof(StepHeader)) / sizeof(LayerGroupHeader);
  if (header.n_groups < 1 || static_cast<std::size_t>(header.n_groups) > n_most_groups)
    return bad_step(fmt::format("{} layer groups in {} bytes", header.n_groups, bytes.size()));
  const std::size_t begin = sizeof(StepHeader) + static_cast<std::size_t>(header.n_groups) * sizeof(LayerGroupHeader);
  for (const SectionInfo& info : kSections)
    for (std::int32_t g = 0; g < (static_cast<std::size_t>(info.kind) < kStepKinds ? 1 : header.n_groups); ++g) {
      const Section& section = step.section(info.kind, g);
      if (section.count == 0 && section.offset == 0) continue;  // the step has none
      const std::int64_t end = section.offset + std::int64_t{section.count} * info.element_bytes;
      if (section.count < 0 || section.offset < static_cast<std::int64_t>(begin) ||
          static_cast<std::size_t>(section.offset) % kSectionAlignment != 0 || end > header.size_bytes)
        return bad_step(fmt::format("{} {} from byte {} of {}", section.count, info.name, section.offset, bytes.size()));
    }
  if (header.n_rows < 0 || step.count(SectionKind::token_ids) != header.n_rows)
    return bad_step(fmt::format("{} token ids for {} rows", step.count(SectionKind::token_ids), header.n_rows));
  for (std::int32_t g = 0; g < header.n_groups; ++g) {
    const LayerGroupHeader& group = step.group(g);
    if (step.count(SectionKind::rows, g) != header.n_rows || step.count(SectionKind::kv_indices, g) != header.n_rows ||
        step.count(SectionKind::merge_offsets, g) != header.n_rows + 1)
      return bad_step(fmt::format("another number of rows than {} in layer group {}", header.n_rows, g));
    const std::int32_t n_items = step.count(SectionKind::items, g);
    if (group.n_partials < 0 || group.most_merge_inputs < 0 || group.n_item_major < 0 || group.n_item_major > n_items ||
        group.tile_kind < 0 || group.n_larger_workers < 0)
      return bad_step(fmt::format("numbers of layer group {} that do not belong to its {} items", g, n_items));
  }
  return step;
}

/// No message has come. Error: the group is broken.
Result<std::optional<std::string>> nothing_more(const RankGroup& ranks) {
  if (ranks.has_ended()) return std::optional<std::string>();
  return fail(ErrorCode::unavailable, sentence_of(ranks));
}

/// The text that a message announces.
Result<std::optional<std::string>> words_of(RankGroup& ranks, const RankMessage& message) {
  if (message.n_bytes > kMostWordBytes)
    return fail(ErrorCode::invalid_data,
                fmt::format("rank 0 announces a text of {} bytes; at most {} are taken", message.n_bytes, kMostWordBytes));
  std::string words(message.n_bytes, '\0');
  if (!ranks.receive(std::as_writable_bytes(std::span(words)))) return nothing_more(ranks);
  return std::optional(std::move(words));
}

/// An executor that does what rank 0's does.
class Follower {
 public:
  Follower(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, RankGroup& ranks)
      : backend_(std::move(backend)), model_(std::move(model)), ranks_(ranks) {}

  Result<void> run() {
    RankMessage message;
    while (ranks_.receive(std::as_writable_bytes(std::span(&message, 1)))) {
      if (message.command == RankCommand::end) return {};
      BATON_TRY_VOID(follow(message));
      if (ranks_.is_broken()) break;
    }
    if (ranks_.has_ended()) return {};
    return fail(ErrorCode::unavailable, sentence_of(ranks_));
  }

 private:
  /// The message's arguments as elements of T, from `least` to `most` of them.
  template <class T>
  Result<std::vector<T>> arguments(const RankMessage& message, std::size_t least, std::size_t most) {
    if (message.n_bytes % sizeof(T) != 0 || message.n_bytes / sizeof(T) < least || message.n_bytes / sizeof(T) > most)
      return bad_message(message);
    std::vector<T> elements(message.n_bytes / sizeof(T));
    receive(std::as_writable_bytes(std::span(elements)));
    return elements;
  }
  /// Bytes that are not there because the group is broken stay as they are: run() ends before they are used.
  void receive(std::span<std::byte> bytes) { is_whole_ = is_whole_ && ranks_.receive(bytes); }

  static tl::unexpected<Error> bad_message(const RankMessage& message) {
    return fail(ErrorCode::invalid_data,
                fmt::format("rank 0 has sent a message that is none, or not expected now: command {}, number {}, {} bytes",
                            static_cast<std::int32_t>(message.command), message.number, message.n_bytes));
  }

  Result<void> follow(const RankMessage& message) {
    if ((executor_ == nullptr) != (message.command == RankCommand::create)) return bad_message(message);
    switch (message.command) {
      case RankCommand::create: return create(message);
      case RankCommand::allocate_cache: return allocate_cache(message);
      case RankCommand::capture_steps: {
        const auto captured = executor_->capture_steps(message.number);
        return reply(captured ? Result<void>() : tl::unexpected(captured.error()));
      }
      case RankCommand::forward: return forward(message);
      case RankCommand::sample: executor_->sample(); return {};
      case RankCommand::sample_masked: return sample_masked(message);
      case RankCommand::wait:
        executor_->wait();
        input_ = executor_->take_input();
        return {};
      case RankCommand::load:
      case RankCommand::device:
      case RankCommand::end: break;
    }
    return bad_message(message);
  }

  Result<void> create(const RankMessage& message) {
    BATON_TRY(const std::vector<StepBounds> bounds, arguments<StepBounds>(message, 1, 1));
    if (!is_whole_) return {};
    bounds_ = bounds[0];
    auto made = Executor::create(std::move(backend_), std::move(model_), bounds_, nullptr);
    if (!made) return reply(tl::unexpected(made.error()));
    executor_ = std::move(*made);
    return reply({});
  }
  Result<void> allocate_cache(const RankMessage& message) {
    const auto n_groups = static_cast<std::size_t>(bounds_.n_groups);
    BATON_TRY(const std::vector<CacheGroup> groups, arguments<CacheGroup>(message, n_groups, n_groups));
    return is_whole_ ? reply(executor_->allocate_cache(groups, message.number, message.dtype)) : Result<void>();
  }
  Result<void> forward(const RankMessage& message) {
    if (message.n_bytes > bounds_.size_bytes()) return bad_message(message);
    received_.resize(message.n_bytes);
    receive(received_);
    if (!is_whole_) return {};
    BATON_TRY(StepInput step, unpack_step(received_, bounds_, std::move(input_)));
    executor_->forward(std::move(step));
    return {};
  }
  Result<void> sample_masked(const RankMessage& message) {
    if (message.number < 0 || message.number > bounds_.max_masks ||
        executor_->mask_bytes(message.number).size() != message.n_bytes)
      return bad_message(message);
    receive(executor_->mask_bytes(message.number));
    if (is_whole_) executor_->sample_masked(message.number);
    return {};
  }
  /// Tells rank 0 how it went.
  Result<void> reply(const Result<void>& own) {
    BATON_TRY_VOID(ranks_.gather(make_reply(own, executor_ == nullptr ? 0 : executor_->backend().free_memory_bytes())));
    return own;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  RankGroup& ranks_;
  std::unique_ptr<Executor> executor_;
  StepBounds bounds_;
  std::vector<std::byte> received_;  ///< a step as rank 0 packed it
  StepInput input_;                  ///< memory of a step that has run, for the next
  bool is_whole_ = true;             ///< all that was asked for has been received
};

}  // namespace

void RankSteps::load(std::string_view what) {
  pass_on(ranks_.get(), {.command = RankCommand::load}, std::as_bytes(std::span(what)));
}
void RankSteps::device(std::string_view what) {
  pass_on(ranks_.get(), {.command = RankCommand::device}, std::as_bytes(std::span(what)));
}
void RankSteps::end() { pass_on(ranks_.get(), {.command = RankCommand::end}, {}); }
void RankSteps::create(const StepBounds& bounds) {
  pass_on(ranks_.get(), {.command = RankCommand::create}, std::as_bytes(std::span(&bounds, 1)));
}
void RankSteps::allocate_cache(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype) {
  pass_on(ranks_.get(), {.command = RankCommand::allocate_cache, .number = block_len, .dtype = dtype}, std::as_bytes(groups));
}
void RankSteps::capture_steps(std::int32_t max_rows) {
  pass_on(ranks_.get(), {.command = RankCommand::capture_steps, .number = max_rows}, {});
}
void RankSteps::forward(const StepInput& step) { pass_on(ranks_.get(), {.command = RankCommand::forward}, step.bytes()); }
void RankSteps::sample() { pass_on(ranks_.get(), {.command = RankCommand::sample}, {}); }
void RankSteps::sample_masked(std::int32_t n_rows, std::span<const std::byte> masks) {
  pass_on(ranks_.get(), {.command = RankCommand::sample_masked, .number = n_rows}, masks);
}
void RankSteps::wait() { pass_on(ranks_.get(), {.command = RankCommand::wait}, {}); }

Result<std::int64_t> RankSteps::agree(const Result<void>& own, std::int64_t free_memory_bytes) {
  if (ranks_ == nullptr || ranks_->world_size() == 1) {
    BATON_TRY_VOID(own);
    return free_memory_bytes;
  }
  BATON_TRY(const std::vector<std::vector<std::byte>> replies, ranks_->gather(make_reply(own, free_memory_bytes)));
  BATON_TRY_VOID(own);
  for (std::size_t rank = 1; rank < replies.size(); ++rank) {
    const std::vector<std::byte>& bytes = replies[rank];
    RankReply reply;
    if (bytes.size() < sizeof(reply))
      return fail(ErrorCode::invalid_data, fmt::format("rank {} has sent a reply of {} bytes", rank, bytes.size()));
    std::memcpy(&reply, bytes.data(), sizeof(reply));
    if (reply.code < ErrorCode::invalid_request || reply.code > ErrorCode::internal) reply.code = ErrorCode::internal;
    const std::string message(reinterpret_cast<const char*>(bytes.data()) + sizeof(reply), bytes.size() - sizeof(reply));
    if (reply.has_failed != 0) return fail(reply.code, fmt::format("rank {}: {}", rank, message));
    free_memory_bytes = std::min(free_memory_bytes, reply.free_memory_bytes);
  }
  return free_memory_bytes;
}

std::optional<std::string> RankSteps::fault() const {
  if (ranks_ == nullptr || !ranks_->is_broken()) return std::nullopt;
  return sentence_of(*ranks_);
}

Result<std::optional<std::string>> next_load(RankGroup& ranks) {
  RankMessage message;
  while (ranks.receive(std::as_writable_bytes(std::span(&message, 1)))) {
    if (message.command == RankCommand::end) continue;
    if (message.command != RankCommand::load)
      return fail(ErrorCode::invalid_data, "rank 0 runs steps that this rank knows nothing of");
    return words_of(ranks, message);
  }
  return nothing_more(ranks);
}

Result<std::optional<std::string>> next_device(RankGroup& ranks) {
  RankMessage message;
  if (!ranks.receive(std::as_writable_bytes(std::span(&message, 1)))) return nothing_more(ranks);
  if (message.command == RankCommand::end) return std::optional<std::string>();
  if (message.command != RankCommand::device)
    return fail(ErrorCode::invalid_data, "rank 0 runs steps before it has told of its device");
  return words_of(ranks, message);
}

Result<StepInput> unpack_step(std::span<const std::byte> bytes, const StepBounds& bounds, StepInput reused) {
  BATON_TRY(const StepView packed, view_of(bytes));
  if (packed.header->n_groups != bounds.n_groups)
    return bad_step(fmt::format("{} layer groups, and the model has {}", packed.header->n_groups, bounds.n_groups));
  if (const auto excess = find_excess(packed, bounds)) return bad_step(*excess);
  reused.adopt(bytes);
  return reused;
}

Result<void> follow_rank_0(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, RankGroup& ranks) {
  check(ranks.rank() > 0, "follow_rank_0: this is rank 0");
  auto ended = Follower(std::move(backend), std::move(model), ranks).run();
  if (!ended && ended.error().code == ErrorCode::invalid_data) ranks.fail(ended.error().message);
  return ended;
}

}  // namespace baton
