/// Finds the distinct masks of a step and makes each once.
#include "engine/step/step_masks.h"

#include <algorithm>
#include <tuple>

#include "core/attempt.h"
#include "core/check.h"

namespace baton {
namespace {

/// Work that taking tokens, and following drafts, may cost a step beside its budget: some 4 ms each. Known tokens cost nearly
/// nothing. What is left to do counts as work on the mask.
constexpr std::int64_t kTakeWork = std::int64_t{1} << 16;

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

/// Continues with a row of bits; whether it is made or cannot be.
bool go_on(const AnswerGrammar& grammar, const AnswerGrammar::Place& place, std::span<std::uint32_t> bits,
           grammar::MatcherWork& work, Result<void>& made) {
  grammar::Matcher& matcher = grammar.matcher();
  const Result<bool> is_ready = fill_words(matcher, bits, [&](auto words) { return matcher.mask(place.state, words, work); });
  if (!is_ready) made = tl::unexpected(is_ready.error());
  return !is_ready || *is_ready;
}

Error no_memory() { return {ErrorCode::out_of_memory, "there is no memory left to find the tokens that the grammar allows"}; }
Error not_allowed(const AnswerGrammar& grammar) {
  if (grammar.matcher().has_overflowed()) return grammar::Matcher::overflow();
  return {ErrorCode::internal, "the answer has a token that its grammar does not allow"};
}

Sequence& sequence_of(const BuiltStep& step, const MaskedSample& masked) {
  return *step.sequences[static_cast<std::size_t>(masked.sequence)].sequence;
}

/// Threads that make masks, the engine's own included.
constexpr int kMostThreads = 4;
/// Of the steps in a tenant's time, so that weights divide them.
constexpr std::int64_t kUnit = kMaxTenantWeight;

}  // namespace

MaskJobs::MaskJobs(const MaskBudget& budget) : budget_(budget), threads_(std::min(kMostThreads, n_available_threads())) {}

void MaskJobs::begin_step() {
  begin_ = Clock::now();
  n_steps_kept_ = budget_.steps;
}

/// Forgets the accounts of tenants and requests that have no jobs. A new owner begins with the time of the one that has had
/// least; it is not owed what was done before.
void MaskJobs::open_accounts(std::span<const MaskJob> jobs) {
  std::map<std::int32_t, Account> kept;
  for (const MaskJob& job : jobs) {
    Account& account = kept[job.tenant.id];
    const auto before = accounts_.find(job.tenant.id);
    account.time = before != accounts_.end() ? before->second.time : -1;
    std::int64_t& steps = account.of_request[job.request.value];
    steps = -1;
    if (before == accounts_.end()) continue;
    if (const auto known = before->second.of_request.find(job.request.value); known != before->second.of_request.end())
      steps = known->second;
  }
  // Times count from that of the least, so that they stay small.
  const auto settle = [](auto& accounts, auto time_of) {
    std::int64_t least = -1;
    for (auto& entry : accounts)
      if (time_of(entry) >= 0) least = least < 0 ? time_of(entry) : std::min(least, time_of(entry));
    for (auto& entry : accounts) time_of(entry) = std::max<std::int64_t>(0, time_of(entry) - std::max<std::int64_t>(0, least));
  };
  for (auto& [tenant, account] : kept) settle(account.of_request, [](auto& entry) -> std::int64_t& { return entry.second; });
  settle(kept, [](auto& entry) -> std::int64_t& { return entry.second.time; });
  accounts_ = std::move(kept);
}

bool MaskJobs::is_before(const MaskJob& job, const MaskJob& other) const {
  const Account& account = accounts_.at(job.tenant.id);
  const Account& account_of_other = accounts_.at(other.tenant.id);
  if (job.tenant.id != other.tenant.id) return account.time < account_of_other.time;
  return account.of_request.at(job.request.value) < account_of_other.of_request.at(other.request.value);
}

/// The job whose turn it is; null: none is free, or the budget is used up.
MaskJob* MaskJobs::next(std::span<MaskJob> jobs) {
  if (n_steps_left_ <= 0 || (has_turned_ && Clock::now() >= deadline_)) return nullptr;
  MaskJob* first = nullptr;
  for (MaskJob& job : jobs) {
    if (job.is_done || std::ranges::find(busy_, job.matcher) != busy_.end()) continue;
    if (first == nullptr || is_before(job, *first)) first = &job;
  }
  return first;
}

/// One thread's part of a run.
void MaskJobs::serve(std::span<MaskJob> jobs) {
  MutexLock lock(mutex_);
  while (MaskJob* const job = next(jobs)) {
    has_turned_ = true;
    busy_.push_back(job->matcher);
    grammar::MatcherWork work{std::min(budget_.steps_of_turn, n_steps_left_)};
    const std::int64_t n_given = work.n_left;
    n_steps_left_ -= n_given;
    lock.unlock();
    bool is_done = true;
    job->lacks_memory = !attempt([&] { is_done = job->go_on(work); });
    lock.lock();
    job->is_done = is_done;
    std::erase(busy_, job->matcher);
    n_steps_left_ += work.n_left;
    const std::int64_t n_used = n_given - work.n_left;
    Account& account = accounts_.at(job->tenant.id);
    account.time += n_used * kUnit / std::max(1, job->tenant.weight);
    account.of_request.at(job->request.value) += n_used;
  }
}

void MaskJobs::begin_run(std::span<const MaskJob> jobs, Part part, std::int64_t n_saved) {
  const MutexLock lock(mutex_);
  open_accounts(jobs);
  busy_.reserve(static_cast<std::size_t>(threads_.n_threads()));
  deadline_ = begin_ + (part == Part::half ? budget_.time / 2 : budget_.time);
  n_steps_left_ = n_steps_kept_ - n_saved;
  has_turned_ = false;
}

void MaskJobs::run(std::span<MaskJob> jobs, Part part) {
  if (jobs.empty()) return;
  const std::int64_t n_saved = part == Part::half ? n_steps_kept_ / 2 : 0;
  begin_run(jobs, part, n_saved);
  const bool has_several = std::ranges::any_of(jobs, [&](const MaskJob& job) { return job.matcher != jobs.front().matcher; });
  if (has_several)
    threads_.for_parts(threads_.n_threads(), [&](std::int64_t, int) { serve(jobs); });
  else
    serve(jobs);
  const MutexLock lock(mutex_);
  n_steps_kept_ = n_saved + n_steps_left_;
}

bool StepMasks::Key::operator<(const Key& other) const {
  if (std::tie(matcher, state) != std::tie(other.matcher, other.state))
    return std::tie(matcher, state) < std::tie(other.matcher, other.state);
  return std::ranges::lexicographical_compare(forbidden_ends, other.forbidden_ends);
}

void StepMasks::take(const BuiltStep& step, std::span<StepOutcome> outcomes) {
  const auto draft_failures = std::exchange(draft_failures_, {});
  grammar::MatcherWork work{kTakeWork};
  auto outcome = outcomes.begin();
  for (const StepSequence& of : step.sequences) {
    Sequence* const sequence = of.sequence;
    if (outcome == outcomes.end()) return;
    if (sequence == nullptr || sequence->task->id != outcome->id) continue;
    StepOutcome& taken = *outcome++;
    AnswerGrammar* const grammar = sequence->grammar.get();
    if (grammar == nullptr || grammar->has_ended()) continue;
    for (const TokenOutput& output : taken.tokens) grammar->push(output.token);
    const bool is_allowed = taken.finished || grammar->catch_up(work) != grammar::Accepted::no;
    const auto failure = draft_failures.find(sequence->task->id.value);
    const bool has_met_it = failure != draft_failures.end() && taken.finished == FinishReason::stop && !taken.stop_token &&
                            taken.n_accepted == failure->second.n_drafts;
    if (has_met_it) {
      taken.finished = FinishReason::error;
      taken.error = std::make_shared<const Error>(failure->second.error);
    }
    if (taken.finished) grammar->end();
    if (!is_allowed) fail(*sequence, not_allowed(*grammar));
  }
}

void StepMasks::fail(Sequence& sequence, Error error) {
  sequence.grammar->end();
  failures_.push_back({sequence.task->id, std::move(error)});
}

StepMasks::Built StepMasks::build(BuiltStep& step, const MaskMemory& memory) {
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
  jobs_.begin_step();
  catch_up(step);
  find_rows(step, memory);
  make_rows();
  report_failures(step, memory);
  Built built{.n_rows = static_cast<std::int32_t>(rows_.size()), .late = drop_late(step, memory)};
  built.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return built;
}

/// Continues after tokens for which `take` had no time. Half of the budget is left for masks, so that none of a key waits for
/// the tokens of another.
void StepMasks::catch_up(const BuiltStep& step) {
  std::vector<MaskJob> jobs;
  std::vector<Sequence*> behind;
  for (const MaskedSample& masked : step.masked) {
    Sequence& sequence = sequence_of(step, masked);
    const bool is_first = step.drafts_of_sample[static_cast<std::size_t>(masked.sample)].empty();
    if (!is_first || sequence.grammar->has_ended() || sequence.grammar->is_caught_up()) continue;
    const auto go_on = [&grammar = *sequence.grammar](grammar::MatcherWork& work) {
      return grammar.catch_up(work) != grammar::Accepted::not_yet;
    };
    behind.push_back(&sequence);
    jobs.push_back({sequence.task->tenant, sequence.task->request, &sequence.grammar->matcher(), go_on});
  }
  jobs_.run(jobs, MaskJobs::Part::half);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].lacks_memory || behind[i]->grammar->has_failed())
      fail(*behind[i], jobs[i].lacks_memory ? no_memory() : not_allowed(*behind[i]->grammar));
}

/// Finds the samples that have masks, and the distinct ones among these.
void StepMasks::find_rows(const BuiltStep& step, const MaskMemory& memory) {
  std::ranges::fill(memory.row_of, -1);
  is_late_.assign(step.masked.size(), false);
  grammar::MatcherWork work{kTakeWork};
  std::int32_t last = -1;                  // the sequence of the sample before
  AnswerGrammar::Place place;              // of the sample
  auto accepted = grammar::Accepted::yes;  // whether the grammar allows all drafts up to it
  for (std::size_t i = 0; i < step.masked.size(); ++i) {
    const MaskedSample& masked = step.masked[i];
    const Sequence& sequence = sequence_of(step, masked);
    const AnswerGrammar& grammar = *sequence.grammar;
    if (grammar.has_ended()) continue;
    const std::span<const TokenId> drafts = step.drafts_of_sample[static_cast<std::size_t>(masked.sample)];
    if (masked.sequence != std::exchange(last, masked.sequence)) {
      place = grammar.place();
      accepted = grammar.is_caught_up() ? grammar::Accepted::yes : grammar::Accepted::not_yet;
    } else if (accepted == grammar::Accepted::yes) {
      accepted = grammar.advance(place, drafts.back(), work);
    }
    is_late_[i] = accepted == grammar::Accepted::not_yet;
    if (accepted == grammar::Accepted::yes && place.has_begun)
      memory.row_of[i] = row_for(sequence, place, drafts.size(), memory);
  }
}

/// The row of bits for a place; a new one if no sample before has an equal one.
std::int32_t StepMasks::row_for(const Sequence& sequence, const AnswerGrammar::Place& place, std::size_t n_drafts,
                                const MaskMemory& memory) {
  const AnswerGrammar& grammar = *sequence.grammar;
  const auto next = static_cast<std::int32_t>(rows_.size());
  const auto [at, is_new] = row_of_key_.try_emplace({&grammar.matcher(), place.state.number(), grammar.forbidden_ends()}, next);
  if (!is_new) return at->second;
  const auto n_words = static_cast<std::size_t>(memory.n_words);
  rows_.push_back({&grammar, &*sequence.task, n_drafts, place, memory.bits.subspan(rows_.size() * n_words, n_words)});
  return next;
}

/// Makes the rows that are known, and continues with the others: first the rows without drafts.
void StepMasks::make_rows() {
  std::vector<Row*> missing;
  for (Row& row : rows_) {
    grammar::Matcher& matcher = row.grammar->matcher();
    row.is_ready = fill_words(matcher, row.bits, [&](auto bits) { return matcher.copy_known_mask(row.place.state, bits); });
    if (!row.is_ready) missing.push_back(&row);
  }
  std::ranges::stable_sort(missing, {}, [](const Row* row) { return row->n_drafts; });
  std::vector<MaskJob> jobs;
  for (Row* const row : missing) {
    const auto make = [row](grammar::MatcherWork& work) {
      return row->is_ready = go_on(*row->grammar, row->place, row->bits, work, row->made);
    };
    jobs.push_back({row->task->tenant, row->task->request, &row->grammar->matcher(), make});
  }
  jobs_.run(jobs, MaskJobs::Part::all);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].lacks_memory) continue;
    missing[i]->is_ready = true;
    missing[i]->made = tl::unexpected(no_memory());
  }
  for (const Row& row : rows_)
    if (row.is_ready) forbid(row.grammar->forbidden_ends(), row.bits);
}

/// A sequence whose next mask cannot be made fails. After a draft nothing is allowed instead, and `take` finds out whether
/// the draft was accepted.
void StepMasks::report_failures(const BuiltStep& step, const MaskMemory& memory) {
  if (std::ranges::all_of(rows_, [](const Row& row) { return row.made.has_value(); })) return;
  for (Row& row : rows_)
    if (!row.made) std::ranges::fill(row.bits, 0);
  for (std::size_t i = 0; i < step.masked.size(); ++i) {
    if (memory.row_of[i] < 0) continue;
    const Row& row = rows_[static_cast<std::size_t>(memory.row_of[i])];
    if (row.made) continue;
    Sequence& sequence = sequence_of(step, step.masked[i]);
    const auto n_drafts = std::ssize(step.drafts_of_sample[static_cast<std::size_t>(step.masked[i].sample)]);
    if (n_drafts == 0)
      fail(sequence, row.made.error());
    else
      draft_failures_.try_emplace(sequence.task->id.value, static_cast<std::int32_t>(n_drafts), row.made.error());
  }
}

/// Takes the samples without a mask that is ready, and the samples after them, out of the step. Returns their sequences.
std::vector<std::size_t> StepMasks::drop_late(BuiltStep& step, const MaskMemory& memory) const {
  std::vector<std::size_t> late;
  for (std::size_t i = 0; i < step.masked.size(); ++i) {
    const auto at = static_cast<std::size_t>(step.masked[i].sequence);
    AnswerGrammar& grammar = *step.sequences[at].sequence->grammar;
    const bool is_first = step.drafts_of_sample[static_cast<std::size_t>(step.masked[i].sample)].empty();
    if (is_first) grammar.set_late(false);
    if (grammar.has_ended()) continue;
    const std::int32_t row = memory.row_of[i];
    const bool is_late = is_late_[i] || (row >= 0 && !rows_[static_cast<std::size_t>(row)].is_ready);
    if (is_late && (late.empty() || late.back() != at)) late.push_back(at);
    if (late.empty() || late.back() != at) continue;
    grammar.set_late(true);
    memory.row_of[i] = -1;
    --step.sequences[at].samples.count;
  }
  return late;
}

}  // namespace baton
