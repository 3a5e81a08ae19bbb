/// What callers and the engine's thread hand to each other.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "engine/cache/kv_events.h"
#include "engine/engine_options.h"
#include "engine/pin_table.h"
#include "engine/request/event_queue.h"
#include "engine/request/request.h"
#include "engine/schedule/queue_limit.h"
#include "engine/schedule/sequence.h"
#include "engine/step/block_transfer.h"
#include "engine/tree_view.h"

namespace baton {

struct SubmitCommand {
  RequestId id;
  std::vector<std::unique_ptr<Sequence>> sequences;  ///< made by the caller: a request for which there is no memory fails there
};
struct FinishCommand {
  RequestId request;
  std::optional<std::int32_t> index;  ///< absent: all sequences of the request
  FinishReason reason = FinishReason::abort;
};
/// What callers asked for since the engine's thread last took it, once in each step. The order between the kinds does not
/// matter: a request is submitted before it is finished.
struct Inbox {
  std::list<SubmitCommand> submits;
  std::vector<FinishCommand> finishes;
  bool wants_tree = false;  ///< see Engine::tree

  bool is_empty() const { return submits.empty() && finishes.empty() && !wants_tree; }
};

/// The hand-over between callers and the engine's thread: commands go in, events come out. Thread: any.
struct Mailbox {
  Mailbox(const EngineOptions& options, std::int32_t block_len)
      : by_size(options.by_size), queue(options.max_num_queued_reqs), pins(block_len) {}

  /// Whether callers have asked for something.
  bool has_work() const BATON_REQUIRES(mutex) {
    return is_stopping || !inbox.is_empty() || pins.has_changes() || transfers.has_work();
  }
  /// The line of `queue` in which sequences wait.
  QueueLimit::Line line_of(Tenant tenant, std::int32_t prompt_len, std::int32_t max_len, std::int32_t n_sequences) const {
    return {tenant.id, by_size ? FairQueue::size_of(prompt_len, max_len, n_sequences) : 0};
  }
  QueueLimit::Line line_of(const SequenceTask& task) const {
    return line_of(task.tenant, task.prompt_len, task.max_len, task.n_siblings);
  }

  const bool by_size;
  mutable Mutex mutex;
  Condition filled;
  Inbox inbox BATON_GUARDED_BY(mutex);
  std::int64_t next_request BATON_GUARDED_BY(mutex) = 0;
  SequenceId next_sequence BATON_GUARDED_BY(mutex){0};
  QueueLimit queue BATON_GUARDED_BY(mutex);               ///< of sequences that wait for their first step
  std::int64_t n_unfinished BATON_GUARDED_BY(mutex) = 0;  ///< sequences and prefix prefills, from submit to their last event
  bool is_draining BATON_GUARDED_BY(mutex) = false;
  bool is_stopping BATON_GUARDED_BY(mutex) = false;
  bool has_thread BATON_GUARDED_BY(mutex) = false;
  PinTable pins BATON_GUARDED_BY(mutex);
  TransferQueue transfers BATON_GUARDED_BY(mutex);
  /// As of the last request for one.
  std::shared_ptr<const TreeView> tree BATON_GUARDED_BY(mutex) = std::make_shared<TreeView>();
  /// For steps, once the engine has a thread. While it is not held, new requests are refused.
  std::optional<MemoryReserve> reserve BATON_GUARDED_BY(mutex);

  EventQueue<Event> events;
  EventQueue<KvEvent> kv_events;  ///< empty without EngineOptions::kv_events
};

}  // namespace baton
