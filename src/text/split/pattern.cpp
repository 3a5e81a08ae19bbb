/// Translates Oniguruma's expressions for PCRE2, and searches text for them.
#include "text/split/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "core/log.h"
#include "text/split/expression_search.h"
#include "text/split/unicode.h"
#include "text/tables/character_tables.h"

namespace baton {

namespace {

constexpr std::size_t kMaxExpressionBytes = 64 << 10;

struct FreeCompiled {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

struct Compiled {
  std::unique_ptr<pcre2_code, FreeCompiled> code;  // nullptr where the expression is not valid
  int error = 0;
  PCRE2_SIZE error_at = 0;
};

Compiled compile(std::string_view expression) {
  Compiled result;
  result.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                  &result.error, &result.error_at, nullptr));
  return result;
}

/// Rewrites an expression in Oniguruma's (Ruby) syntax, which tokenizer files use, as one that means the same to
/// PCRE2.
class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        BATON_TRY_VOID(escape());
      } else if (in_class_) {
        BATON_TRY_VOID(inside_class(c));
      } else {
        BATON_TRY_VOID(outside_class(c));
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void copy(std::size_t n_bytes) {
    out_ += in_.substr(at_, n_bytes);
    at_ += std::min(n_bytes, in_.size() - at_);
  }

  void replace(std::size_t n_bytes, std::string_view with) {
    out_ += with;
    at_ += n_bytes;
  }

  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::unsupported, fmt::format("regular expression '{}': {} (byte {}) is not supported", in_, what, at_));
  }

  /// A set of characters that may stand inside or outside a class.
  void replace_by_set(std::string_view members) {
    if (in_class_) {
      replace(2, members);
    } else {
      replace(2, fmt::format("[{}]", members));
    }
  }

  Result<void> escape() {
    if (at_ + 1 >= in_.size()) return refuse("a backslash at the end");
    // Outside classes Oniguruma counts the superscripts and fractions of Latin-1 (not others) as word characters.
    static constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
    static constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";
    switch (in_[at_ + 1]) {
      case 's': replace(2, "\\p{White_Space}"); return {};
      case 'S': replace(2, "\\P{White_Space}"); return {};
      case 'd': replace(2, "\\p{Nd}"); return {};
      case 'D': replace(2, "\\P{Nd}"); return {};
      case 'w': replace_by_set(in_class_ ? kWordInClass : kWord); return {};
      case 'W':
        if (in_class_) return refuse("\\W in a class");
        replace(2, fmt::format("[^{}]", kWord));
        return {};
      case 'b':
      case 'B': {
        if (in_class_) {
          copy(2);  // a backspace
          return {};
        }
        const std::string_view ends =
            in_[at_ + 1] == 'b' ? "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))" : "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))";
        replace(2, fmt::format(fmt::runtime(ends), kWord));
        return {};
      }
      case 'h': replace_by_set("0-9a-fA-F"); return {};
      case 'H':
        if (in_class_) return refuse("\\H in a class");
        replace(2, "[^0-9a-fA-F]");
        return {};
      case 'v': replace(2, "\\x0b"); return {};
      case 'Q':
      case 'E':
      case 'V':
      case 'N':
      case 'C': return refuse(fmt::format("\\{}", in_[at_ + 1]));
      case 'u':
        if (at_ + 6 > in_.size()) return refuse("a short \\u");
        replace(2, "\\x{");
        copy(4);
        out_ += '}';
        return {};
      case 'p':
      case 'P': return property();
      default: copy(2); return {};
    }
  }

  /// \\p{...}: PCRE2 reads a script's name as the scripts that use the character, Oniguruma as the script it belongs
  /// to.
  Result<void> property() {
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{') {
      copy(2);
      return {};
    }
    const std::size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return refuse("a brace that is not closed");
    const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const std::string_view negation = name.starts_with('^') ? "^" : "";
    const std::string script = fmt::format("{{{}sc:{}}}", negation, name.substr(negation.size()));
    if (name.size() > 2 && compile("\\p" + script).code != nullptr) {
      copy(2);
      replace(close + 1 - at_, script);
    } else {
      copy(close + 1 - at_);
    }
    return {};
  }

  Result<void> inside_class(char c) {
    if (next_is("&&")) return intersection();
    if (next_is("[:")) {
      const std::size_t close = in_.find(":]", at_ + 2);
      if (close == std::string_view::npos) return refuse("a class inside a class");
      copy(close + 2 - at_);
      return {};
    }
    if (c == '[' || (c == ']' && n_inner_classes_ > 0)) return inner_bracket(c);
    if (c == ']') in_class_ = false;
    copy(1);
    return {};
  }

  /// `[\p{Lu}\p{M}&&[^\p{Han}]]`: general categories, from which a class is taken away. PCRE2 has no such intersections; what is of
  /// none of the other categories and not in that class is the same.
  Result<void> intersection() {
    static constexpr std::array<std::string_view, 30> kCategories{"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                                  "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                                  "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
    const std::size_t end = std::min(in_.find(']', at_), in_.size());
    const std::string_view excluded = next_is("&&[^") ? in_.substr(at_ + 4, end - at_ - 4) : std::string_view();
    std::vector<std::string_view> others(kCategories.begin(), kCategories.end());
    std::string_view members = in_.substr(class_in_, at_ - class_in_);
    while (members.starts_with("\\p{")) {
      const std::string_view name = members.substr(3, members.find('}') - 3);
      if (name.empty() || std::erase_if(others, [&](std::string_view one) { return one.starts_with(name); }) == 0) break;
      members.remove_prefix(name.size() + 4);
    }
    if (excluded.empty() || excluded.find('[') != std::string_view::npos || excluded.ends_with('\\') || !members.empty() ||
        others.size() == kCategories.size() || !in_.substr(end).starts_with("]]"))
      return refuse("an intersection of classes (&&)");
    BATON_TRY(std::string translated, Translator(fmt::format("[^{}]", excluded)).run());
    translated.pop_back();
    for (const std::string_view other : others) translated += fmt::format("\\p{{{}}}", other);
    out_.replace(class_out_, std::string::npos, translated + "]");
    at_ = end + 2;
    in_class_ = false;
    return {};
  }

  /// A class inside a class adds its members to the outer class, so its brackets are dropped.
  Result<void> inner_bracket(char c) {
    const bool is_negated = next_is("[^");
    const bool joins_a_range = next_is("[-") || next_is("]-") || out_.ends_with('-');
    if (is_negated || joins_a_range || next_is("[]")) return refuse("such a class inside a class");
    n_inner_classes_ += c == '[' ? 1 : -1;
    at_ += 1;
    return {};
  }

  Result<void> outside_class(char c) {
    if (c == '[') {
      in_class_ = true;
      class_in_ = at_ + 1;
      class_out_ = out_.size();
      copy(next_is("[^") ? 2 : 1);
      if (next_is("]")) return refuse("a class that begins with ]");
    } else if (next_is("(?")) {
      copy(2);
      // Ruby's m lets the dot match newlines, which is s elsewhere; ^ and $ always match at lines.
      std::size_t n_flags = 0;
      while (at_ + n_flags < in_.size() && std::string_view("imx-").find(in_[at_ + n_flags]) != std::string_view::npos)
        ++n_flags;
      for (std::size_t i = 0; i < n_flags; ++i) out_ += in_[at_ + i] == 'm' ? 's' : in_[at_ + i];
      at_ += n_flags;
    } else if (next_is("(*")) {
      return refuse("a verb (*");
    } else if (next_is("}+")) {
      return refuse("a repeated interval {}+");
    } else {
      copy(1);
    }
    return {};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::size_t class_in_ = 0;   // where its members begin
  std::size_t class_out_ = 0;  // where its translation begins
  int n_inner_classes_ = 0;
  std::string out_;
};

/// `text` with characters that are newer than PCRE2's tables replaced by older ones of their kind; empty where it has none.
/// No byte moves.
std::string without_new_characters(std::string_view text) {
  std::string replaced;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0xE0) {
      ++at;
      continue;
    }
    const unicode::Step step = unicode::decode_front(text.substr(at));
    if (const char32_t known = unicode::known_to_regex(step.code_point); known != step.code_point) {
      if (replaced.empty()) replaced = text;
      replaced.replace(at, step.n_bytes, unicode::to_utf8(known));
    }
    at += step.n_bytes;
  }
  return replaced;
}

}  // namespace

void Pattern::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Result<Pattern> Pattern::regex(std::string_view expression) {
  if (expression.size() > kMaxExpressionBytes)
    return fail(ErrorCode::unsupported, fmt::format("a regular expression has {} bytes; at most {} are supported",
                                                    expression.size(), kMaxExpressionBytes));
  if (!unicode::is_valid_utf8(expression)) return fail(ErrorCode::invalid_data, "a regular expression is not UTF-8");
  BATON_TRY(const std::string translated, Translator(expression).run());

  Compiled compiled = compile(translated);
  if (compiled.code == nullptr) {
    unsigned char message[256] = {};
    pcre2_get_error_message(compiled.error, message, sizeof message);
    return fail(ErrorCode::unsupported, fmt::format("regular expression '{}': {} (byte {} of '{}')", expression,
                                                    reinterpret_cast<const char*>(message), compiled.error_at, translated));
  }
  Pattern pattern;
  pattern.code_.reset(compiled.code.release());
  pattern.needs_start_ = translated.find("\\G") != std::string::npos;
  // Without a JIT compiler the interpreter gives the same matches.
  pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);
  return pattern;
}

Result<Pattern> Pattern::from_json(const json::Value& value, std::string_view component) {
  if (value.is_string()) return literal(value.get_ref<const std::string&>());
  if (const json::Value* text = json::find(value, "String"); text != nullptr && text->is_string())
    return literal(text->get_ref<const std::string&>());
  if (const json::Value* text = json::find(value, "Regex"); text != nullptr && text->is_string())
    return regex(text->get_ref<const std::string&>());
  return fail(ErrorCode::invalid_data, fmt::format("{}: the pattern must be a String or a Regex", component));
}

Pattern::ScanEnd Pattern::scan(std::string_view text, std::size_t from, std::size_t until, std::vector<TextRange>& matches,
                               WorkMeter& meter) const {
  ExpressionSearch search(*code_, text, needs_start_, meter);
  while (from <= text.size()) {
    ExpressionSearch::Match found_at;
    const auto found = search.next(from, found_at);
    if (found == ExpressionSearch::Found::nothing) return ScanEnd::reached;
    if (found == ExpressionSearch::Found::gave_up) return ScanEnd::gave_up;
    // \K can put the start after the end, or a look-behind's match before the last one: neither is a match for
    // splitting.
    const TextRange match{found_at.begin, found_at.end};
    if (match.begin > match.end || match.begin < (matches.empty() ? 0 : matches.back().end)) return ScanEnd::reached;
    const bool is_empty_after_match = match.begin == match.end && !matches.empty() && matches.back().end == match.end;
    if (is_empty_after_match) {
      if (from == text.size()) return ScanEnd::reached;
      from += unicode::decode_front(text.substr(from)).n_bytes;
    } else {
      from = match.end;
      matches.push_back(match);
      if (from >= until) return ScanEnd::stopped;
    }
  }
  return ScanEnd::reached;
}

/// The same from the beginning to the end of the text, in parallel.
Pattern::ScanEnd Pattern::scan_apart(std::string_view text, const Parallel& parallel, std::vector<TextRange>& matches,
                                     WorkMeter& meter) const {
  struct Part {
    std::size_t begin = 0;
    std::vector<TextRange> matches;
    ScanEnd end = ScanEnd::reached;
  };
  constexpr std::size_t kPartsForThread = 4;
  constexpr int kMaxTries = 32;
  std::vector<Part> parts(kPartsForThread * static_cast<std::size_t>(parallel.n_threads()));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::size_t begin = text.size() / parts.size() * i;
    while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
    parts[i].begin = begin;
  }
  const auto end_of = [&](std::size_t i) { return i + 1 < parts.size() ? parts[i + 1].begin : text.size() + 1; };
  parallel.for_parts(static_cast<std::int64_t>(parts.size()), [&](std::int64_t part, int) {
    const auto i = static_cast<std::size_t>(part);
    WorkMeter own(meter.budget());
    parts[i].end = scan(text, parts[i].begin, end_of(i), parts[i].matches, own);
  });

  matches = std::move(parts[0].matches);
  ScanEnd end = parts[0].end;
  int n_tries = 0;
  for (std::size_t i = 1; end == ScanEnd::stopped && i < parts.size();) {
    const std::size_t at = matches.back().end;
    const auto found = std::ranges::lower_bound(parts[i].matches, at, {}, &TextRange::end);
    if (found != parts[i].matches.end() && found->end == at) {
      matches.insert(matches.end(), found + 1, parts[i].matches.end());
      end = parts[i].end;
      n_tries = 0;
      ++i;
    } else if (at >= end_of(i)) {
      n_tries = 0;
      ++i;
    } else {
      // Two scans that do not meet soon may never do so.
      end = scan(text, at, ++n_tries > kMaxTries ? end_of(i) : at + 1, matches, meter);
    }
  }
  return end == ScanEnd::stopped ? scan(text, matches.back().end, text.size() + 1, matches, meter) : end;
}

namespace {

/// Where the literal stands.
std::vector<TextRange> places_of(std::string_view literal, std::string_view text, WorkMeter& meter) {
  std::vector<TextRange> places;
  if (literal.empty() || !meter.pass(text.size() + literal.size())) return places;
  std::string_view rest = text;
  while (meter.spend(1)) {
    // In linear time whatever the literal is, as std::string_view::find is not.
    const void* const found = ::memmem(rest.data(), rest.size(), literal.data(), literal.size());
    if (found == nullptr) break;
    const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    places.push_back({at, at + literal.size()});
    rest = text.substr(at + literal.size());
  }
  return places;
}

void warn_of_giving_up(const std::vector<TextRange>& matches, std::string_view text) {
  log::warning("event=regex_gave_up at_byte={} text_bytes={}", matches.empty() ? 0 : matches.back().end, text.size());
}

}  // namespace

std::vector<TextRange> Pattern::find_all(std::string_view text) const { return find_all(text, UnlimitedWork().meter()); }

std::vector<TextRange> Pattern::find_all(std::string_view text, WorkMeter& meter) const {
  if (code_ == nullptr) return places_of(literal_, text, meter);
  std::vector<TextRange> matches;
  if (!meter.pass(text.size())) return matches;
  const std::string replaced = without_new_characters(text);
  const ScanEnd end = scan(replaced.empty() ? text : std::string_view(replaced), 0, text.size() + 1, matches, meter);
  if (end == ScanEnd::gave_up && meter.is_within()) warn_of_giving_up(matches, text);
  return matches;
}

std::vector<TextRange> Pattern::find_all(std::string_view text, const Parallel& parallel, WorkMeter& meter) const {
  if (code_ == nullptr) return places_of(literal_, text, meter);
  std::vector<TextRange> matches;
  if (!meter.pass(text.size())) return matches;
  const std::string replaced = without_new_characters(text);
  const ScanEnd end = scan_apart(replaced.empty() ? text : std::string_view(replaced), parallel, matches, meter);
  if (end == ScanEnd::gave_up && meter.is_within()) warn_of_giving_up(matches, text);
  return matches;
}

std::string Pattern::replace_all(std::string_view text, std::string_view content) const {
  return *replace_all_within(std::numeric_limits<std::size_t>::max(), text, content, UnlimitedWork().meter());
}

std::optional<std::string> Pattern::replace_all_within(std::size_t max_bytes, std::string_view text, std::string_view content,
                                                       WorkMeter& meter) const {
  const std::vector<TextRange> matches = find_all(text, meter);
  std::size_t n_bytes = text.size() + matches.size() * content.size();
  for (const TextRange& match : matches) n_bytes -= match.end - match.begin;
  if (n_bytes > max_bytes || !meter.pass(n_bytes) || !meter.write(n_bytes)) return std::nullopt;
  std::string out;
  out.reserve(n_bytes);
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    out += text.substr(done, match.begin - done);
    out += content;
    done = match.end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace baton
