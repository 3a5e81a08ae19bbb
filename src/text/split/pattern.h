/// Patterns of tokenizer files: a literal string, or a regular expression in Oniguruma's syntax, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/parallel.h"
#include "core/result.h"
#include "io/json.h"

struct pcre2_real_code_8;

namespace baton {

/// The word characters of Rust's regular expressions, for use inside a class. Unlike Oniguruma's \\w they include the
/// joiners and exclude the superscripts and fractions of Latin-1.
inline constexpr std::string_view kRustWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

/// A half-open range of bytes.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A compiled pattern. Immutable. Thread: any, several at once.
class Pattern {
 public:
  static Pattern literal(std::string text);
  /// Errors: invalid_data or unsupported, with the expression and the place. Keeps Oniguruma's meaning of \s, \w, \d,
  /// \h, \v, ^, $ and (?m), and of && where a class is taken away from general categories. Refuses what else PCRE2 would understand
  /// differently (other &&, negated classes in classes, {n,m}+).
  static Result<Pattern> regex(std::string_view expression);
  /// {"String": "..."} or {"Regex": "..."}; a bare string is a literal.
  static Result<Pattern> from_json(const json::Value& value, std::string_view component);

  /// The matches in valid UTF-8, left to right, not overlapping; an empty match never follows another match directly.
  /// An expression that needs more than 10^6 steps or 64 MiB at one place matches nothing from there on. What returns is of
  /// no use where the budget of `meter` is over.
  std::vector<TextRange> find_all(std::string_view text, WorkMeter& meter) const;
  /// The same without a budget.
  std::vector<TextRange> find_all(std::string_view text) const;
  /// The same matches, found by several threads that begin at different places. What is found after the end of a match
  /// depends on nothing before it, so a thread's matches count from the first end on that a scan from the front reaches.
  std::vector<TextRange> find_all(std::string_view text, const Parallel& parallel, WorkMeter& meter) const;

  /// `text` with every match replaced by `content`, taken literally.
  std::string replace_all(std::string_view text, std::string_view content) const;
  /// The same, or nullopt where the result would have more than `max_bytes`.
  std::optional<std::string> replace_all_within(std::size_t max_bytes, std::string_view text, std::string_view content,
                                                WorkMeter& meter) const;

  /// The literal, or nullptr for a regular expression.
  const std::string* as_literal() const { return code_ == nullptr ? &literal_ : nullptr; }

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  /// Whether a scan stopped before the end of the text, reached it, or gave up.
  enum class ScanEnd { stopped, reached, gave_up };
  ScanEnd scan(std::string_view text, std::size_t from, std::size_t until, std::vector<TextRange>& matches,
               WorkMeter& meter) const;
  ScanEnd scan_apart(std::string_view text, const Parallel& parallel, std::vector<TextRange>& matches, WorkMeter& meter) const;

  std::string literal_;
  bool needs_start_ = false;  // \\G matches where a search begins, so that a search cannot continue at a later place
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
};

}  // namespace baton
