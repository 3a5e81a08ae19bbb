/// One message for each call of rank 0's executor.
#include "engine/rank_steps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "engine/executor.h"

namespace baton {
namespace {

/// How long the sentence of a broken group may be on its way.
constexpr std::chrono::milliseconds kSentenceTimeout{1000};

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

/// Sends a message; a broken group takes none, and its fault is found by whoever waits for results.
bool pass_on(RankGroup* ranks, RankMessage message, std::span<const std::byte> arguments) {
  if (ranks == nullptr) return false;
  message.n_bytes = arguments.size();
  return ranks->send(std::as_bytes(std::span(&message, 1))) && ranks->send(arguments);
}

std::string sentence_of(const RankGroup& ranks) {
  return ranks.wait_fault(kSentenceTimeout).value_or("a rank has ended its group");
}

template <std::int32_t n>
struct Element {
  std::array<std::byte, n> bytes;
};

/// The step of the bytes of another rank's StepInput, in the memory of `reused`.
StepInput unpack_step(std::span<const std::byte> bytes, StepInput reused) {
  const StepView packed{reinterpret_cast<const StepHeader*>(bytes.data()), bytes.data()};
  check(bytes.size() >= sizeof(StepHeader) && packed.header->size_bytes == static_cast<std::int32_t>(bytes.size()),
        "unpack_step: the bytes are no step");
  const std::int32_t n_groups = packed.header->n_groups;
  StepInput step = reused.header().n_groups == n_groups ? std::move(reused) : StepInput(n_groups);
  step.restart();
  step.header() = *packed.header;
  for (std::int32_t g = 0; g < n_groups; ++g) step.group(g) = packed.group(g);
  const auto append = [&]<std::size_t kind>(std::integral_constant<std::size_t, kind>) {
    constexpr SectionKind section = kSections[kind].kind;
    for (std::int32_t g = 0; g < (kind < kStepKinds ? 1 : n_groups); ++g)
      step.append(section, packed.span<Element<kSections[kind].element_bytes>>(section, g), g);
  };
  [&]<std::size_t... kinds>(std::index_sequence<kinds...>) {
    (append(std::integral_constant<std::size_t, kinds>{}), ...);
  }(std::make_index_sequence<kSections.size()>{});
  step.finish();
  return step;
}

/// No message has come. Error: the group is broken.
Result<std::optional<std::string>> nothing_more(const RankGroup& ranks) {
  if (ranks.has_ended()) return std::optional<std::string>();
  return fail(ErrorCode::unavailable, sentence_of(ranks));
}

/// The text that a message announces.
Result<std::optional<std::string>> words_of(RankGroup& ranks, const RankMessage& message) {
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
  /// The message's arguments as elements of T.
  template <class T>
  std::vector<T> arguments(const RankMessage& message) {
    std::vector<T> elements(message.n_bytes / sizeof(T));
    receive(std::as_writable_bytes(std::span(elements)));
    return elements;
  }
  /// Bytes that are not there because the group is broken stay as they are: run() ends before they are used.
  void receive(std::span<std::byte> bytes) { is_whole_ = is_whole_ && ranks_.receive(bytes); }

  Result<void> follow(const RankMessage& message) {
    check(executor_ != nullptr || message.command == RankCommand::create, "Follower: a message before create");
    switch (message.command) {
      case RankCommand::create: return create(arguments<StepBounds>(message));
      case RankCommand::allocate_cache: return allocate_cache(arguments<CacheGroup>(message), message);
      case RankCommand::capture_steps: {
        const auto captured = executor_->capture_steps(message.number);
        return reply(captured ? Result<void>() : tl::unexpected(captured.error()));
      }
      case RankCommand::forward: return forward(message);
      case RankCommand::sample: executor_->sample(); return {};
      case RankCommand::sample_masked: {
        receive(executor_->mask_bytes(message.number));
        if (is_whole_) executor_->sample_masked(message.number);
        return {};
      }
      case RankCommand::wait:
        executor_->wait();
        input_ = executor_->take_input();
        return {};
      case RankCommand::load:
      case RankCommand::device:
      case RankCommand::end: break;
    }
    check_failed("Follower: a message that is none");
  }

  Result<void> create(const std::vector<StepBounds>& bounds) {
    if (!is_whole_) return {};
    auto made = Executor::create(std::move(backend_), std::move(model_), bounds.at(0), nullptr);
    if (!made) return reply(tl::unexpected(made.error()));
    executor_ = std::move(*made);
    return reply({});
  }
  Result<void> allocate_cache(const std::vector<CacheGroup>& groups, const RankMessage& message) {
    return is_whole_ ? reply(executor_->allocate_cache(groups, message.number, message.dtype)) : Result<void>();
  }
  Result<void> forward(const RankMessage& message) {
    received_.resize(message.n_bytes);
    receive(received_);
    if (!is_whole_) return {};
    executor_->forward(unpack_step(received_, std::move(input_)));
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
    check(bytes.size() >= sizeof(reply), "RankSteps: a reply that is none");
    std::memcpy(&reply, bytes.data(), sizeof(reply));
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
    check(message.command == RankCommand::load, "next_load: rank 0 runs steps that this rank knows nothing of");
    return words_of(ranks, message);
  }
  return nothing_more(ranks);
}

Result<std::optional<std::string>> next_device(RankGroup& ranks) {
  RankMessage message;
  if (!ranks.receive(std::as_writable_bytes(std::span(&message, 1)))) return nothing_more(ranks);
  if (message.command == RankCommand::end) return std::optional<std::string>();
  check(message.command == RankCommand::device, "next_device: rank 0 runs steps before it has told of its device");
  return words_of(ranks, message);
}

Result<void> follow_rank_0(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, RankGroup& ranks) {
  check(ranks.rank() > 0, "follow_rank_0: this is rank 0");
  return Follower(std::move(backend), std::move(model), ranks).run();
}

}  // namespace baton
