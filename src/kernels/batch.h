/// One step's work as plain data: token rows, attention items, sampling metadata. The batch builder packs it into one
/// trivially copyable buffer (StepInput); a rank needs nothing else to run the step. The buffer is a table of sections
/// by kind. Offsets are bytes from its start, so the same view works on the host's copy and on a device's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/check.h"
#include "core/ids.h"

namespace baton {

/// Stands in StepInput for "the last token sampled for this row's slot".
inline constexpr TokenId kLastTokenOfSlot = -1;
/// A KV index is the address of one KV position in a storage: block * block_len + offset in the block. (A slot is
/// something else: a running sequence's row of the slot table, see SlotState.) kNoKvIndex means that the row's key and
/// value are not stored.
inline constexpr std::int64_t kNoKvIndex = -1;
/// Most alternatives with log-probabilities of a sampled token.
inline constexpr int kMaxTopLogprobs = 20;
/// Most elements of a step's lists (counts, biases, bans, allowed ids) together.
inline constexpr std::int32_t kMaxListEntries = 4 << 20;
/// Most stop token ids of a sequence.
inline constexpr int kMaxStopIds = 16;
/// Most drafts of a sequence in a step. It equals the one block that each running sequence is sure to get beyond what its tokens
/// need.
inline constexpr std::int32_t kMaxDraftTokens = 16;

/// One token of the batch in flight, for attention: its key and value belong to `position`, and its query sees the
/// keys at positions [kv_lo, kv_hi) of its sequence (kv_hi = position + 1; kv_lo > 0 only with a window).
struct TokenRow {
  std::int32_t slot = 0;  ///< the sequence's row in the slot table
  std::int32_t position = 0;
  std::int32_t kv_lo = 0;
  std::int32_t kv_hi = 0;
};
static_assert(sizeof(TokenRow) == 16);

/// Attention of token rows [first_row, first_row + n_rows) over one run of keys, the positions [kv_begin, kv_end): a
/// node of the prefix tree, a piece of one, or a sequence's own context. An item names neither a KV head nor a
/// request: the executor combines each item with each of its KV heads. Block p of the run is block_lists[block_list +
/// p / block_len - kv_begin / block_len].
struct AttentionItem {
  enum Flags : std::int32_t {
    direct = 1,  ///< the only item of all its rows: the final output is written, no partial state
    masked = 2,  ///< some row's [kv_lo, kv_hi) cuts the run: bounds are applied
  };
  /// Bits above the flags: the number of granules of 16 positions, counted from the granule of kv_begin, that hold no
  /// key of this step. A device may read them before the step's keys are stored.
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
  std::int32_t n_sequences = 0;  ///< sequences among the rows, for statistics of sharing
};
static_assert(sizeof(AttentionItem) == 32);

/// Rows [first_row, first_row + n_rows) of one sequence, at positions from `position` on, as recurrent layers see them: before the
/// first row the state is that of `read_slot`, and the state after the last row goes to `write_slot` (StateStorage). The two may
/// be the same. A step has at most one run for each sequence, no two runs write one slot, and none reads a slot that another
/// writes. The rows of a finished sequence count as all others.
///
/// The last n_drafts rows are drafts, of which the sampler accepts some. The state that is written is the one before them, and their
/// inputs are kept in rows [first_kept, first_kept + n_drafts) of the storage. The sequence's next run begins with the accepted
/// ones: the state before its first row is that of read_slot after rows [first_replayed, first_replayed + n_replayed) of the
/// storage, and it has the same bits as if they had never been drafts. No run keeps rows where a run of its step reads or keeps
/// others. A run with either has at most kMaxDraftTokens + 1 rows, of which the first is no draft.
struct StateRun {
  static constexpr std::int32_t kZeroState = -1;  ///< in the place of read_slot: the state before the first row is zero
  std::int32_t first_row = 0;
  std::int32_t n_rows = 0;
  std::int32_t position = 0;
  std::int32_t read_slot = kZeroState;
  std::int32_t write_slot = 0;
  std::int32_t n_replayed = 0;
  std::int32_t first_replayed = 0;
  std::int32_t n_drafts = 0;
  std::int32_t first_kept = 0;

  constexpr std::int32_t n_written() const { return n_rows - n_drafts; }  ///< rows that the written state has
};
static_assert(sizeof(StateRun) == 36);

/// Elements [first, first + count) of a section of the step.
struct Range {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

/// A token that a penalty applies to, and how often the sequence has generated it so far; 0: it occurs in the prompt
/// only.
struct TokenCount {
  TokenId id = 0;
  std::int32_t count = 0;
  bool operator==(const TokenCount&) const = default;
};
/// A value that is added to a token's logit; -infinity forbids the token.
struct TokenBias {
  TokenId id = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};
/// `banned` is forbidden if the last token of the slot is `after`; -1: always.
struct TokenBan {
  TokenId after = -1;
  TokenId banned = 0;
  bool operator==(const TokenBan&) const = default;
};

/// How the next token of one row is sampled and when its sequence ends. If `scored` is set, only the log-probability
/// of a known token is computed. The engine checks all values.
struct SamplingMetadata {
  std::int32_t row = 0;  ///< the row whose logits are used
  std::int32_t slot = 0;
  /// A known token (of the prompt): its log-probability is reported, and nothing else happens; the slot does not
  /// change. -1: a token is sampled.
  TokenId scored = -1;
  float temperature = 0;             ///< 0: the most likely token (the smaller id on a tie)
  std::int32_t top_k = 0;            ///< 0: off
  float top_p = 1;                   ///< 1: off
  float min_p = 0;                   ///< 0: off
  std::int32_t n_top_logprobs = -1;  ///< -1: no log-probabilities; 0: the chosen token's; n: also the n most likely
  std::uint64_t seed = 0;            ///< random numbers are a function of (seed, number of tokens generated)
  float repetition_penalty = 1;      ///< 1: off; for generated tokens and prompt tokens
  float presence_penalty = 0;        ///< 0: off; for generated tokens
  float frequency_penalty = 0;       ///< 0: off; for each occurrence of a generated token
  /// 1: the slot's last token was sampled by a step that the host had not seen when it made `counts`, so the sampler
  /// counts it.
  std::int32_t counts_last_token = 0;
  Range counts;                 ///< of SectionKind::token_counts, each id once
  Range biases;                 ///< of SectionKind::token_biases, each id once
  Range bans;                   ///< of SectionKind::token_bans
  Range allowed;                ///< of SectionKind::allowed_ids, ascending; empty: all tokens
  std::int32_t min_tokens = 0;  ///< stop ids are not chosen before this many tokens
  std::int32_t max_tokens = 0;  ///< the sequence is finished after this many
  std::int32_t n_stop_ids = 0;
  std::array<TokenId, kMaxStopIds> stop_ids{};
  std::int32_t n_generated_before = 0;  ///< tokens before its slot was reset; add SlotState::n_generated
  std::int32_t mask = -1;               ///< index into TokenMasks::row_of (ops.h); -1: the sample has no mask

  constexpr bool has_penalties() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

enum class FinishedBy : std::int32_t {
  not_finished = 0,
  stop_id = 1,
  length = 2,
  not_a_number = 3,
  nothing_allowed = 4,  ///< every token was forbidden; the result has none
};

/// The result of sampling for one sample.
struct SampleResult {
  TokenId token = 0;
  FinishedBy finished = FinishedBy::not_finished;
  std::int32_t was_finished = 0;  ///< 1: the sequence had ended in an earlier step; ignore the other members
  std::int32_t n_top = 0;
  float logprob =
      0;  ///< natural log of the token's probability in the unmodified logits: before biases, penalties, temperature
  std::int32_t rank = 0;  ///< of a scored token: 1 + the number of more likely tokens
  std::array<TokenId, kMaxTopLogprobs> top_ids{};
  std::array<float, kMaxTopLogprobs> top_logprobs{};
};

/// The device's state of one running sequence. The sampler updates it, and kernels limit their reads by it. Step n+1
/// is planned before step n has run, so a row of a sequence that step n finished is dead: its attention is empty and
/// its sample is marked was_finished.
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

/// The content of a section. A new kind is an enumerator here and a row of kSections.
enum class SectionKind : std::int32_t {
  // One of each kind in a step.
  token_ids,     ///< int32 [n_rows], or kLastTokenOfSlot
  reset_slots,   ///< int32 slots of sequences that begin: their SlotState is zeroed first
  samples,       ///< SamplingMetadata; row i of the logits belongs to sample i
  token_counts,  ///< TokenCount, see SamplingMetadata
  token_biases,  ///< TokenBias
  token_bans,    ///< TokenBan
  allowed_ids,   ///< int32
  state_runs,    ///< StateRun, one for each sequence; none in a model without recurrent layers
  // One of each kind in every layer group.
  rows,           ///< TokenRow [n_rows]
  kv_indices,     ///< int64 [n_rows]: KV indices, or kNoKvIndex
  items,          ///< AttentionItem
  block_lists,    ///< int32 block ids
  merge_offsets,  ///< int32 [n_rows + 1] into merge_inputs; no inputs: the row was written directly
  merge_inputs,   ///< int32 partial states of each row, in merge order (ascending positions)
  /// int32 item * n_kv_heads + kv_head: worker w takes [worker_offsets[w], worker_offsets[w + 1]) of them in this
  /// order, so that all workers end together (AttentionPlan::pairs). Both sections are empty unless the backend asks
  /// for them.
  pairs,
  worker_offsets,  ///< int32 [n_workers + 1]
};
inline constexpr std::size_t kStepKinds = static_cast<std::size_t>(SectionKind::rows);
inline constexpr std::size_t kGroupKinds = static_cast<std::size_t>(SectionKind::worker_offsets) + 1 - kStepKinds;

/// The most elements that a step may have, computed once from the engine's limits. Memory for steps is allocated by
/// it, the scheduler plans within it, and the executor aborts on a step that exceeds it.
struct StepBounds {
  std::int32_t max_rows = 0;
  std::int32_t max_samples = 0;   ///< rows whose logits are needed
  std::int32_t max_partials = 0;  ///< partial attention states of one layer group
  std::int32_t max_slots = 0;
  std::int32_t max_items = 1 << 16;  ///< attention items of one layer group
  std::int32_t max_pairs = 1 << 20;  ///< items times KV heads
  std::int32_t max_workers = 1 << 12;
  std::int32_t max_block_entries = 1 << 20;         ///< block ids in the lists of one layer group, over all items
  std::int32_t max_list_entries = kMaxListEntries;  ///< token counts, biases, bans and allowed ids together
  std::int32_t max_state_runs = 0;                  ///< sequences of a step; 0 without recurrent layers
  std::int32_t n_groups = 1;                        ///< layer groups
  std::int32_t max_positions = 0;                   ///< tokens of the longest sequence
  /// Samples that may have a token mask, and 32-bit words of a mask. Masks are uploaded by themselves, after the step.
  std::int32_t max_masks = 0;
  std::int32_t mask_words = 0;

  /// Bytes of the largest step.
  std::size_t size_bytes() const;
  /// Bytes of the rows' numbers (TokenMasks::row_of), up to a multiple of kSectionAlignment.
  std::size_t mask_rows_bytes() const;
  /// Bytes of the most masks of a step, with the rows' numbers before them.
  std::size_t masks_bytes() const;
};

/// Pointer to a member of StepBounds.
using StepBound = std::int32_t StepBounds::*;

/// Properties of a kind of section.
struct SectionInfo {
  SectionKind kind;
  std::string_view name;
  std::int32_t element_bytes = 0;
  StepBound max_count = nullptr;
  std::int32_t n_more = 0;  ///< elements beyond max_count
  /// All kinds with this mark together have at most max_count elements.
  bool shares_bound = false;
};

/// Every kind of section, in the order of SectionKind.
inline constexpr auto kSections = std::to_array<SectionInfo>({
    {SectionKind::token_ids, "token ids", sizeof(TokenId), &StepBounds::max_rows},
    {SectionKind::reset_slots, "slots to reset", sizeof(std::int32_t), &StepBounds::max_slots},
    {SectionKind::samples, "samples", sizeof(SamplingMetadata), &StepBounds::max_samples},
    {SectionKind::token_counts, "token counts", sizeof(TokenCount), &StepBounds::max_list_entries, 0, true},
    {SectionKind::token_biases, "token biases", sizeof(TokenBias), &StepBounds::max_list_entries, 0, true},
    {SectionKind::token_bans, "token bans", sizeof(TokenBan), &StepBounds::max_list_entries, 0, true},
    {SectionKind::allowed_ids, "allowed ids", sizeof(TokenId), &StepBounds::max_list_entries, 0, true},
    {SectionKind::state_runs, "runs of recurrent layers", sizeof(StateRun), &StepBounds::max_state_runs},
    {SectionKind::rows, "rows", sizeof(TokenRow), &StepBounds::max_rows},
    {SectionKind::kv_indices, "KV indices", sizeof(std::int64_t), &StepBounds::max_rows},
    {SectionKind::items, "attention items", sizeof(AttentionItem), &StepBounds::max_items},
    {SectionKind::block_lists, "block list entries", sizeof(std::int32_t), &StepBounds::max_block_entries},
    {SectionKind::merge_offsets, "merge offsets", sizeof(std::int32_t), &StepBounds::max_rows, 1},
    {SectionKind::merge_inputs, "merge inputs", sizeof(std::int32_t), &StepBounds::max_partials},
    {SectionKind::pairs, "pairs of item and KV head", sizeof(std::int32_t), &StepBounds::max_pairs},
    {SectionKind::worker_offsets, "worker offsets", sizeof(std::int32_t), &StepBounds::max_workers, 1},
});
static_assert(kSections.size() == kStepKinds + kGroupKinds);
static_assert([] {
  for (std::size_t i = 0; i < kSections.size(); ++i)
    if (static_cast<std::size_t>(kSections[i].kind) != i) return false;
  return true;
}());

/// Sections begin at multiples of this, because devices read items 16 bytes at a time.
inline constexpr std::size_t kSectionAlignment = 16;

/// The sections of one layer group.
struct LayerGroupHeader {
  std::array<Section, kGroupKinds> sections{};
  std::int32_t n_partials = 0;
  std::int32_t most_merge_inputs = 0;  ///< most merge inputs of any row
  /// Number of leading items that are shared runs or long contexts. An executor that assigns items one by one takes
  /// all KV heads of such an item together and the remaining items head by head, so that sequences that read the same
  /// blocks separately read them at the same time.
  std::int32_t n_item_major = 0;
  std::int32_t tile_kind = 0;  ///< the kind of tiles that items have (AttentionCosts)
  /// The first so many workers process pairs whose items have tiles of the next kind, at the same time.
  std::int32_t n_larger_workers = 0;

  constexpr const Section& section(SectionKind kind) const { return sections[static_cast<std::size_t>(kind) - kStepKinds]; }
  constexpr Section& section(SectionKind kind) { return sections[static_cast<std::size_t>(kind) - kStepKinds]; }
};

/// The beginning of a step buffer. The headers of its n_groups layer groups follow, then the sections. The model fixes
/// the number of groups, so a header has the same place in every step, and a CapturedGraph finds it there.
struct StepHeader {
  std::int64_t step = 0;
  std::int32_t size_bytes = 0;
  std::int32_t n_rows = 0;
  std::int32_t n_groups = 0;
  std::int32_t reserved = 0;
  std::array<Section, kStepKinds> sections{};

  constexpr const Section& section(SectionKind kind) const { return sections[static_cast<std::size_t>(kind)]; }
  constexpr Section& section(SectionKind kind) { return sections[static_cast<std::size_t>(kind)]; }
};
static_assert(std::is_trivially_copyable_v<StepHeader> && std::is_trivially_copyable_v<LayerGroupHeader> &&
              std::is_trivially_copyable_v<SamplingMetadata> && std::is_trivially_copyable_v<SampleResult>);
static_assert(sizeof(StepHeader) % alignof(LayerGroupHeader) == 0);

/// Reads a step's buffer in place. If `data` is device memory, only the backend reads the sections; the headers are
/// always a host copy.
struct StepView {
  const StepHeader* header = nullptr;  ///< on the host, followed by the headers of the layer groups
  const std::byte* data = nullptr;

  const LayerGroupHeader& group(int index) const {
    check(index >= 0 && index < header->n_groups, "StepView: the layer group is not in the step");
    return reinterpret_cast<const LayerGroupHeader*>(header + 1)[index];
  }
  /// `of_group` applies to kinds that layer groups have.
  const Section& section(SectionKind kind, int of_group = 0) const {
    return static_cast<std::size_t>(kind) < kStepKinds ? header->section(kind) : group(of_group).section(kind);
  }
  std::int32_t count(SectionKind kind, int of_group = 0) const { return section(kind, of_group).count; }
  template <class T>
  const T* pointer(SectionKind kind, int of_group = 0) const {
    check(sizeof(T) == static_cast<std::size_t>(kSections[static_cast<std::size_t>(kind)].element_bytes),
          "StepView: a section has elements of another size");
    return reinterpret_cast<const T*>(data + section(kind, of_group).offset);
  }
  template <class T>
  std::span<const T> span(SectionKind kind, int of_group = 0) const {
    return {pointer<T>(kind, of_group), static_cast<std::size_t>(count(kind, of_group))};
  }
  std::int32_t n_samples() const { return count(SectionKind::samples); }
};

/// A sentence that names the kind of section with more elements than `bounds` allow, and both numbers; nothing if the
/// step fits.
std::optional<std::string> find_excess(const StepView& step, const StepBounds& bounds);

/// Owns one packed step on the host. Sections are appended; `finish` writes the headers.
class StepInput {
 public:
  explicit StepInput(std::int32_t n_groups = 1) : groups_(static_cast<std::size_t>(n_groups)) {
    header_.n_groups = n_groups;
    bytes_.reserve(4096);
    bytes_.resize(sizeof(StepHeader) + groups_.size() * sizeof(LayerGroupHeader));
  }

  /// Begins another step, of as many layer groups, in the same memory.
  void restart() {
    const auto n_groups = header_.n_groups;
    header_ = {};
    header_.n_groups = n_groups;
    groups_.assign(static_cast<std::size_t>(n_groups), {});
    bytes_.resize(sizeof(StepHeader) + groups_.size() * sizeof(LayerGroupHeader));
  }
  std::size_t capacity_bytes() const { return bytes_.capacity(); }
  /// Reserves memory for a step of `size_bytes`, so that appending does not move it.
  void reserve(std::size_t size_bytes) { bytes_.reserve(size_bytes); }

  StepHeader& header() { return header_; }
  LayerGroupHeader& group(int index) { return groups_.at(static_cast<std::size_t>(index)); }

  template <class T>
  void append(SectionKind kind, std::span<const T> elements, int of_group = 0) {
    static_assert(std::is_trivially_copyable_v<T>);
    check(sizeof(T) == static_cast<std::size_t>(kSections[static_cast<std::size_t>(kind)].element_bytes),
          "StepInput: a section has elements of another size");
    const std::size_t offset = (bytes_.size() + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
    bytes_.resize(offset);
    const std::span<const std::byte> bytes = std::as_bytes(elements);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    Section& section = static_cast<std::size_t>(kind) < kStepKinds ? header_.section(kind) : group(of_group).section(kind);
    section = {static_cast<std::int32_t>(offset), static_cast<std::int32_t>(elements.size())};
  }
  template <class T>
  void append(SectionKind kind, const std::vector<T>& elements, int of_group = 0) {
    append(kind, std::span<const T>(elements), of_group);
  }
  void finish() {
    check(bytes_.size() <= std::size_t{std::numeric_limits<std::int32_t>::max()},
          "StepInput: the step is larger than its offsets can say");
    header_.size_bytes = static_cast<std::int32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header_, sizeof(header_));
    std::memcpy(bytes_.data() + sizeof(header_), groups_.data(), groups_.size() * sizeof(LayerGroupHeader));
  }
  /// Takes the bytes of another finished step, whose headers must have been checked.
  void adopt(std::span<const std::byte> bytes) {
    bytes_.assign(bytes.begin(), bytes.end());
    std::memcpy(&header_, bytes_.data(), sizeof(header_));
    groups_.resize(static_cast<std::size_t>(header_.n_groups));
    std::memcpy(groups_.data(), bytes_.data() + sizeof(header_), groups_.size() * sizeof(LayerGroupHeader));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Valid until this object changes; moving the object keeps it valid.
  StepView view() const {
    check(header_.size_bytes == static_cast<std::int32_t>(bytes_.size()), "StepInput: view before finish");
    return {reinterpret_cast<const StepHeader*>(bytes_.data()), bytes_.data()};
  }

 private:
  StepHeader header_;
  std::vector<LayerGroupHeader> groups_;
  std::vector<std::byte> bytes_;
};

}  // namespace baton
