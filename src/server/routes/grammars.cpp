/// Requests that bring a grammar: its compilation, as long work where it takes long.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/limits/thread_time.h"
#include "core/log.h"
#include "core/one_line.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

/// A grammar that takes a thread more of a processor's time is compiled as long work. A schema of 10 KB takes a fifth to a third.
constexpr std::chrono::milliseconds kShortCompile{30};
/// Compiling a byte of a grammar costs about as much as parsing and encoding so many bytes of text.
constexpr std::size_t kTextOfGrammar = 20;
constexpr std::size_t kMaxIgnoredShown = 10;
constexpr std::size_t kMaxLoggedGrammars = 100;

}  // namespace

/// Logs which keywords of a schema have no effect, the same ones once.
void Routes::log_ignored(const std::string& field, const std::vector<std::string>& keywords) {
  if (keywords.empty()) return;
  const std::span<const std::string> shown(keywords.data(), std::min(keywords.size(), kMaxIgnoredShown));
  std::string list = fmt::format("{}", fmt::join(shown, ", "));
  if (shown.size() < keywords.size()) list += fmt::format(" and {} more", keywords.size() - shown.size());
  const MutexLock lock(mutex_);
  if (logged_keywords_.size() >= kMaxLoggedGrammars || !logged_keywords_.insert(list).second) return;
  log::info("event=schema_keywords_ignored field={} keywords={}", log_value(field), log_value(list));
}

void Routes::prepare_grammars() {
  TextQueue::Work work;
  work.n_bytes = TextQueue::kLongBytes + 1;
  work.run = [this] { context_.model.grammars->build_vocabulary(context_.model.tokenizer); };
  texts_.push(std::move(work));
}

/// The constraint of a request's grammar. nullopt: it takes long, and the request was queued again as long work.
Result<std::optional<Constraint>> Routes::constrain(const Call& call, const GenerationRequest& generation) {
  if (!generation.grammar) return Constraint{};
  bool takes_long = !call.is_long && !context_.model.grammars->has_vocabulary();
  const auto end = thread_time() + kShortCompile;
  const auto is_cancelled = [&, is_unwanted = is_unwanted(call.exchange)] {
    takes_long = takes_long || (!call.is_long && thread_time() >= end);
    return takes_long || is_unwanted();
  };
  if (!takes_long) {
    auto made = constraint_of(context_.model, generation, cache_salt_of(call.caller, generation.cache_salt), is_cancelled);
    if (made) {
      log_ignored(generation.grammar->field, made->ignored);
      return std::move(made->constraint);
    }
    if (!takes_long) return tl::unexpected<Error>(std::move(made.error()));
  }
  // The handler begins again.
  if (!queue(call.shared_from_this(), TextQueue::kLongBytes + kTextOfGrammar * (1 + generation.grammar->source.text.size())))
    return fail(ErrorCode::unavailable, "too many requests wait for this server to compile their grammars; please try again");
  return std::optional<Constraint>{};
}

}  // namespace baton
