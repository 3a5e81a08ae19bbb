/// Finds the distinct masks of a step and makes each once.
#include "engine/step_masks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <tuple>

#include "core/check.h"
#include "core/thread_name.h"

namespace baton {
namespace {

/// Threads that make masks, the engine's own included.
constexpr std::size_t kMostThreads = 4;

/// Calls `fill` for the words of the matcher's vocabulary, which may have other tokens at its end than the model.
/// Tokens that it does not know are not allowed.
template <class Fill>
auto fill_words(const grammar::Matcher& matcher, std::span<std::uint32_t> bits, const Fill& fill) {
  const std::size_t n_words = matcher.vocabulary().n_words();
  if (n_words <= bits.size()) {
    std::ranges::fill(bits.subspan(n_words), 0);
    return fill(bits.first(n_words));
  }
  std::vector<std::uint32_t> all(n_words);
  auto filled = fill(std::span(all));
  std::copy_n(all.begin(), bits.size(), bits.begin());
  return filled;
}

void forbid(std::span<const TokenId> tokens, std::span<std::uint32_t> bits) {
  for (const TokenId token : tokens) {
    const auto id = static_cast<std::uint32_t>(token);
    if (id / 32 < bits.size()) bits[id / 32] &= ~(std::uint32_t{1} << (id % 32));
  }
}

/// Calls `work(i)` for i in [0, n), on several threads.
template <class Work>
void on_threads(std::size_t n, const Work& work) {
  std::atomic<std::size_t> next = 0;
  const auto take_all = [&] {
    for (std::size_t i = next++; i < n; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  const std::size_t n_threads = std::min({n, kMostThreads, std::size_t{std::max(1u, std::thread::hardware_concurrency())}});
  while (threads.size() + 1 < n_threads) {
    threads.emplace_back([&] {
      name_this_thread("masks");
      take_all();
    });
  }
  take_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

bool StepMasks::Key::operator<(const Key& other) const {
  if (std::tie(matcher, state) != std::tie(other.matcher, other.state))
    return std::tie(matcher, state) < std::tie(other.matcher, other.state);
  return std::ranges::lexicographical_compare(forbidden_ends, other.forbidden_ends);
}

void StepMasks::take(std::span<Sequence* const> sequences, std::span<StepOutcome> outcomes) {
  const auto draft_failures = std::exchange(draft_failures_, {});
  auto outcome = outcomes.begin();
  for (Sequence* const sequence : sequences) {
    if (outcome == outcomes.end()) return;
    if (sequence == nullptr || sequence->task->id != outcome->id) continue;
    StepOutcome& taken = *outcome++;
    AnswerGrammar* const grammar = sequence->grammar.get();
    if (grammar == nullptr || grammar->has_ended()) continue;
    const bool is_allowed =
        std::ranges::all_of(taken.tokens, [&](const TokenOutput& output) { return grammar->take(output.token); });
    const auto failure = draft_failures.find(sequence->task->id.value);
    const bool has_met_it = failure != draft_failures.end() && taken.finished == FinishReason::stop && !taken.stop_token &&
                            taken.n_accepted == failure->second.n_drafts;
    if (has_met_it) {
      taken.finished = FinishReason::error;
      taken.error = std::make_shared<const Error>(failure->second.error);
    }
    if (taken.finished || !is_allowed) grammar->end();
    if (!is_allowed && !taken.finished)
      failures_.push_back(
          {sequence->task->id, {ErrorCode::internal, "the answer has a token that its grammar does not allow"}});
  }
}

StepMasks::Built StepMasks::build(const BuiltStep& step, std::span<Sequence* const> sequences, const MaskMemory& memory) {
  const auto begin = std::chrono::steady_clock::now();
  check(step.masked.size() <= memory.row_of.size(), "StepMasks: more samples with masks than there is memory for");
  // A place must not outlive its matcher, which ends with the last sequence that has it.
  struct Cleared {
    StepMasks& of;
    ~Cleared() {
      of.rows_.clear();
      of.row_of_key_.clear();
    }
  } const cleared{*this};
  std::ranges::fill(memory.row_of, -1);
  std::int32_t last = -1;      // the sequence of the sample before
  AnswerGrammar::Place place;  // of the sample
  bool is_possible = true;     // the grammar allows all drafts up to it
  for (std::size_t i = 0; i < step.masked.size(); ++i) {
    const MaskedSample& masked = step.masked[i];
    const AnswerGrammar* const grammar = sequences[static_cast<std::size_t>(masked.sequence)]->grammar.get();
    if (grammar->has_ended()) continue;
    const std::span<const TokenId> drafts = step.drafts_of_sample[static_cast<std::size_t>(masked.sample)];
    if (masked.sequence != std::exchange(last, masked.sequence)) {
      place = grammar->place();
      is_possible = true;
    } else if (is_possible) {
      is_possible = grammar->advance(place, drafts.back());
    }
    if (is_possible && place.has_begun) memory.row_of[i] = row_for(*grammar, place, memory);
  }
  make_rows();
  report_failures(step, sequences, memory);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {static_cast<std::int32_t>(rows_.size()), took.count()};
}

/// The row of bits for a place; a new one if no sample before has an equal one.
std::int32_t StepMasks::row_for(const AnswerGrammar& grammar, const AnswerGrammar::Place& place, const MaskMemory& memory) {
  const auto next = static_cast<std::int32_t>(rows_.size());
  const auto [at, is_new] = row_of_key_.try_emplace({&grammar.matcher(), place.state.number(), grammar.forbidden_ends()}, next);
  if (!is_new) return at->second;
  const auto n_words = static_cast<std::size_t>(memory.n_words);
  rows_.push_back({&grammar, place, memory.bits.subspan(rows_.size() * n_words, n_words)});
  return next;
}

void StepMasks::make_rows() {
  std::vector<std::vector<Row*>> missing;  // by grammar: its masks are made one after the other
  for (Row& row : rows_) {
    grammar::Matcher& matcher = row.grammar->matcher();
    if (fill_words(matcher, row.bits, [&](auto bits) { return matcher.copy_known_mask(row.place.state, bits); })) continue;
    const auto same = std::ranges::find_if(
        missing, [&](const std::vector<Row*>& rows) { return &rows.front()->grammar->matcher() == &matcher; });
    if (same != missing.end())
      same->push_back(&row);
    else
      missing.push_back({&row});
  }
  const auto make = [&](std::size_t i) {
    for (Row* const row : missing[i]) {
      grammar::Matcher& matcher = row->grammar->matcher();
      try {
        row->made = fill_words(matcher, row->bits, [&](auto bits) { return matcher.mask(row->place.state, bits); });
      } catch (const std::bad_alloc&) {
        row->made = fail(ErrorCode::out_of_memory, "there is no memory left to find the tokens that the grammar allows");
      }
    }
  };
  if (missing.size() == 1) make(0);
  if (missing.size() > 1) on_threads(missing.size(), make);
  for (const Row& row : rows_) forbid(row.grammar->forbidden_ends(), row.bits);
}

/// A sequence whose next mask cannot be made fails. Behind a draft nothing is allowed instead, and `take` finds out whether
/// the draft was accepted.
void StepMasks::report_failures(const BuiltStep& step, std::span<Sequence* const> sequences, const MaskMemory& memory) {
  if (std::ranges::all_of(rows_, [](const Row& row) { return row.made.has_value(); })) return;
  for (Row& row : rows_)
    if (!row.made) std::ranges::fill(row.bits, 0);
  for (std::size_t i = 0; i < step.masked.size(); ++i) {
    if (memory.row_of[i] < 0) continue;
    const Row& row = rows_[static_cast<std::size_t>(memory.row_of[i])];
    if (row.made) continue;
    Sequence& sequence = *sequences[static_cast<std::size_t>(step.masked[i].sequence)];
    const auto n_drafts = std::ssize(step.drafts_of_sample[static_cast<std::size_t>(step.masked[i].sample)]);
    if (n_drafts > 0) {
      draft_failures_.try_emplace(sequence.task->id.value, static_cast<std::int32_t>(n_drafts), row.made.error());
      continue;
    }
    sequence.grammar->end();
    failures_.push_back({sequence.task->id, row.made.error()});
  }
}

}  // namespace baton
