/// Two tables and their sentences.
#include "bench/demo/demo_report.h"

#include <string_view>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

double in_gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6); }

std::string answer_row(std::string_view name, const std::string& relay, const std::string& paged) {
  return fmt::format("  {:<34}{:>14}{:>14}\n", name, relay, paged);
}

}  // namespace

std::string sharing_text(std::span<const DecodeRun> runs, std::int32_t n_shared) {
  check(runs.size() == 2 && runs[0].arm == "relay" && runs[1].arm == "paged", "the demo compares relay with paged");
  std::string text =
      fmt::format("\n  {:<8}{:>18}{:>26}{:>18}\n", "", "tokens a second", "keys and values read", "reading saved");
  for (const DecodeRun& run : runs)
    text += fmt::format("  {:<8}{:>18.0f}{:>23.1f} GB{:>15.1f} GB\n", run.arm, run.median(),
                        in_gigabytes(run.kv_bytes_requested), in_gigabytes(run.kv_bytes_saved));
  const double faster = runs[0].median() / runs[1].median();
  text += fmt::format(
      "\nBoth keep the prompt's {} tokens once for all {} requests. Relayed attention, the default, also reads them once a\n"
      "step for all; paged attention reads them for each request. ",
      n_shared, runs[0].n_requests);
  if (runs[0].kv_bytes_requested > 0)
    text +=
        fmt::format("Relay read {:.0f} times less, and wrote {:.2f} times as many tokens a second.\n",
                    static_cast<double>(runs[1].kv_bytes_requested) / static_cast<double>(runs[0].kv_bytes_requested), faster);
  else
    text += fmt::format("Relay wrote {:.2f} times as many tokens a second.\n", faster);
  return text;
}

std::string answers_text(const DemoArm& relay, const DemoArm& paged, bool is_large_known) {
  const std::size_t n = relay.answers.size();
  const auto right = [n](const DemoArm& arm) { return fmt::format("{} of {}", arm.n_right, n); };
  const auto first = [](const DemoArm& arm) { return fmt::format("{:.0f} ms", 1e3 * arm.median_first_token_s); };
  const auto rate = [](const DemoArm& arm) { return fmt::format("{:.0f}", arm.tokens_per_s()); };
  std::string text = fmt::format("\n{} questions at once behind one catalogue of {} tokens:\n\n", n, relay.prefix_tokens);
  text += answer_row("", "relay", "paged");
  text += answer_row("exactly right", right(relay), right(paged));
  text += answer_row("keys and values read", megabytes(relay.kv_bytes_requested), megabytes(paged.kv_bytes_requested));
  text += answer_row("reading saved", megabytes(relay.kv_bytes_saved), megabytes(paged.kv_bytes_saved));
  text += answer_row("time to first token, median", first(relay), first(paged));
  text += answer_row("tokens a second", rate(relay), rate(paged));
  text +=
      "\n  These times say little of sharing: the catalogue's keys and values have a few MB, which a processor keeps in its\n"
      "  cache, and such a small model spends its time on other work.";
  if (is_large_known) text += " The first table is of a model where reading counts.";
  return text + "\n";
}

}  // namespace baton
