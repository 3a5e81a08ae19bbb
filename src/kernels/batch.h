/// One step's work as plain data: token rows, attention items, sampling orders. The batch builder packs it into one trivially
/// copyable buffer (StepInput); a rank needs nothing else to run the step. Offsets are bytes from the start of the buffer, so
/// the same view works on the host copy and on a device's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "core/check.h"
#include "core/ids.h"

namespace baton {

/// A token id in StepInput that stands for "the last token that was sampled for this row's slot".
inline constexpr TokenId kLastTokenOfSlot = -1;
/// A KV index is the address of one KV position in a storage: block * block_len + offset in the block. (A slot is a running
/// sequence's row of the slot table, see SlotState.) This one stands for "this row's key and value are not stored".
inline constexpr std::int64_t kNoKvIndex = -1;
/// Layer groups (layers with one window and KV shape) a step can hold.
inline constexpr int kMaxLayerGroups = 2;
/// Alternatives with log-probabilities that a sampled token can carry.
inline constexpr int kMaxTopLogprobs = 20;
/// Elements of a step's lists (counts, biases, bans, allowed ids) together.
inline constexpr std::int32_t kMaxListEntries = 4 << 20;
/// Stop token ids a sequence can carry.
inline constexpr int kMaxStopIds = 16;

/// One token of the batch in flight, as attention sees it: its key and value stand at `position`, and its query sees the keys
/// at positions [kv_lo, kv_hi) of its sequence (kv_hi = position + 1; kv_lo > 0 only in a window).
struct TokenRow {
  std::int32_t slot = 0;  ///< the sequence's row in the slot table
  std::int32_t position = 0;
  std::int32_t kv_lo = 0;
  std::int32_t kv_hi = 0;
};
static_assert(sizeof(TokenRow) == 16);

/// Attention of token rows [first_row, first_row + n_rows) over one run of keys, the positions [kv_begin, kv_end): a node of
/// the prefix tree, a piece of one, or a sequence's own context. It names neither a KV head nor a request: the executor crosses
/// items with the KV heads it holds. Block p of the run is block_lists[block_list + p / block_len - kv_begin / block_len].
struct AttentionItem {
  enum Flags : std::int32_t {
    direct = 1,  ///< the only item of all its rows: the executor writes the final output, no partial state
    masked = 2,  ///< some row's [kv_lo, kv_hi) cuts through the run: bounds are applied (without it every row sees all of it)
  };
  /// Behind the flags: how many granules of 16 positions from kv_begin's own on hold no key of this step. A device may read
  /// them before the step's keys are stored.
  static constexpr std::int32_t kSettledShift = 8;
  static constexpr std::int32_t kMostSettled = 255;
  constexpr std::int32_t n_settled_granules() const { return flags >> kSettledShift; }
  std::int32_t first_row = 0;
  std::int32_t n_rows = 0;
  std::int32_t block_list = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t first_partial = 0;  ///< row first_row + i writes partial state first_partial + i; unused if direct
  std::int32_t flags = 0;
  std::int32_t n_sequences = 0;  ///< sequences among the rows (what sharing saved is counted with it)
};
static_assert(sizeof(AttentionItem) == 32);

/// Elements [first, first + count) of a section of the step.
struct Range {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

/// A token that a penalty is about, and how often the sequence has generated it so far; 0: it stands in the prompt only.
struct TokenCount {
  TokenId id = 0;
  std::int32_t count = 0;
  bool operator==(const TokenCount&) const = default;
};
/// What is added to a token's logit; -infinity forbids the token.
struct TokenBias {
  TokenId id = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};
/// `banned` is forbidden if the last token of the slot is `after`; -1: whatever it is.
struct TokenBan {
  TokenId after = -1;
  TokenId banned = 0;
  bool operator==(const TokenBan&) const = default;
};

/// How the next token of one row is chosen, and when its sequence ends; or, with `scored`, only how probable a known token is.
/// All values are checked by the engine.
struct SamplingMetadata {
  std::int32_t row = 0;  ///< the row whose logits are used
  std::int32_t slot = 0;
  /// A token that is known already (of the prompt): its log-probability is reported and nothing else happens, to the slot
  /// neither. -1: a token is chosen.
  TokenId scored = -1;
  float temperature = 0;             ///< 0: the most likely token (the smaller id on a tie)
  std::int32_t top_k = 0;            ///< 0: off
  float top_p = 1;                   ///< 1: off
  float min_p = 0;                   ///< 0: off
  std::int32_t n_top_logprobs = -1;  ///< -1: no log-probabilities; 0: the chosen token's; n: and the n most likely
  std::uint64_t seed = 0;            ///< random numbers are a function of (seed, number of tokens generated)
  float repetition_penalty = 1;      ///< 1: off; of what was generated or stands in the prompt
  float presence_penalty = 0;        ///< 0: off; of what was generated
  float frequency_penalty = 0;       ///< 0: off; times how often it was generated
  /// 1: the slot's last token was sampled by a step that the host had not seen when it made `counts`; the sampler counts it.
  std::int32_t counts_last_token = 0;
  Range counts;                 ///< of StepHeader::token_counts, ids each once
  Range biases;                 ///< of StepHeader::token_biases, ids each once
  Range bans;                   ///< of StepHeader::token_bans
  Range allowed;                ///< of StepHeader::allowed_ids, ascending; none: all tokens
  std::int32_t min_tokens = 0;  ///< stop ids are not chosen before this many tokens
  std::int32_t max_tokens = 0;  ///< the sequence is finished after this many
  std::int32_t n_stop_ids = 0;
  std::array<TokenId, kMaxStopIds> stop_ids{};
  std::int32_t n_generated_before = 0;  ///< tokens it had when its slot began (it was preempted); add SlotState::n_generated

  constexpr bool has_penalties() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

enum class FinishedBy : std::int32_t {
  not_finished = 0,
  stop_id = 1,
  length = 2,
  not_a_number = 3,
  nothing_allowed = 4,  ///< every token was forbidden; none is given
};

/// What sampling gives back for one order.
struct SampleResult {
  TokenId token = 0;
  FinishedBy finished = FinishedBy::not_finished;
  std::int32_t was_finished = 0;  ///< 1: the sequence had ended in an earlier step, the rest of this result means nothing
  std::int32_t n_top = 0;
  float logprob =
      0;  ///< natural log of the token's probability in the logits as they came: before biases, penalties, temperature
  std::int32_t rank = 0;  ///< of a scored token: 1 + how many are more likely
  std::array<TokenId, kMaxTopLogprobs> top_ids{};
  std::array<float, kMaxTopLogprobs> top_logprobs{};
};

/// The device's truth about one running sequence; the sampler updates it, kernels clamp by it. Step n+1 is planned before step
/// n has run, so a row of a sequence that step n finished is dead: its attention is empty and its sample is marked
/// was_finished.
struct SlotState {
  std::int32_t last_token = 0;
  std::int32_t n_generated = 0;
  std::int32_t finished = 0;
  std::int32_t reserved = 0;
};

/// A part of the step buffer: `count` elements from byte `offset`.
struct Section {
  std::int32_t offset = 0;
  std::int32_t count = 0;
};

/// The rows and the work list of one layer group.
struct LayerGroupSections {
  Section rows;           ///< TokenRow [n_rows]
  Section kv_indices;     ///< int64 [n_rows]: KV indices, or kNoKvIndex
  Section items;          ///< AttentionItem
  Section block_lists;    ///< int32 block ids
  Section merge_offsets;  ///< int32 [n_rows + 1] into merge_inputs; equal neighbours: the row was written directly
  Section merge_inputs;   ///< int32 partial states of each row, in merge order (ascending positions)
  /// int32 item * n_kv_heads + kv_head: worker w takes [worker_offsets[w], worker_offsets[w + 1]) of them in this order, so
  /// that all end together (AttentionPlan::pairs). Both are empty where the backend did not ask for it.
  Section pairs;
  Section worker_offsets;  ///< int32 [n_workers + 1]
  std::int32_t n_partials = 0;
  std::int32_t most_merge_inputs = 0;  ///< of any row
  /// The first so many items are shared runs and long contexts. An executor that hands items out one by one crosses these with
  /// the KV heads item by item, and the rest head by head, so that sequences that read the same blocks by themselves read them
  /// at the same time.
  std::int32_t n_shared_items = 0;
};

struct StepHeader {
  std::int64_t step = 0;
  std::int32_t size_bytes = 0;
  std::int32_t n_rows = 0;
  std::int32_t n_groups = 0;
  std::int32_t reserved = 0;
  Section token_ids;     ///< int32 [n_rows], or kLastTokenOfSlot
  Section reset_slots;   ///< int32 slots that begin a new sequence with this step: their SlotState is zeroed first
  Section samples;       ///< SamplingMetadata; row i of the logits belongs to sample i
  Section token_counts;  ///< TokenCount, see SamplingMetadata
  Section token_biases;  ///< TokenBias
  Section token_bans;    ///< TokenBan
  Section allowed_ids;   ///< int32
  std::array<LayerGroupSections, kMaxLayerGroups> groups{};
};
static_assert(std::is_trivially_copyable_v<StepHeader> && std::is_trivially_copyable_v<SamplingMetadata> &&
              std::is_trivially_copyable_v<SampleResult>);

/// A step's buffer read in place. `data` may be device memory: then only the backend reads the sections, while the header is
/// always a host copy.
struct StepView {
  const StepHeader* header = nullptr;
  const std::byte* data = nullptr;

  template <class T>
  const T* pointer(const Section& section) const {
    return reinterpret_cast<const T*>(data + section.offset);
  }
  template <class T>
  std::span<const T> span(const Section& section) const {
    return {pointer<T>(section), static_cast<std::size_t>(section.count)};
  }
};

/// Owner of one packed step on the host. Sections are appended (16-byte aligned) and the header written by `finish`.
class StepInput {
 public:
  StepInput() {
    bytes_.reserve(4096);
    bytes_.resize(sizeof(StepHeader));
  }

  StepHeader& header() { return header_; }

  template <class T>
  Section append(std::span<const T> elements) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t offset = (bytes_.size() + 15) / 16 * 16;  // devices read items 16 bytes at a time
    bytes_.resize(offset + elements.size_bytes());
    if (!elements.empty()) std::memcpy(bytes_.data() + offset, elements.data(), elements.size_bytes());
    return {static_cast<std::int32_t>(offset), static_cast<std::int32_t>(elements.size())};
  }
  void finish() {
    header_.size_bytes = static_cast<std::int32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header_, sizeof(header_));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  StepView view() const {
    check(header_.size_bytes == static_cast<std::int32_t>(bytes_.size()), "StepInput: view before finish");
    return {&header_, bytes_.data()};
  }

 private:
  StepHeader header_;
  std::vector<std::byte> bytes_;
};

}  // namespace baton
