/// Builds values from the JSON library's events: linear in large objects, bounded in depth, never throwing.
#include "io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json_dismantle.h"
#include "io/json_parse.h"
#include "io/secret_hash.h"

namespace baton::json {
namespace {

using Entry = Value::object_t::value_type;
using Entries = Value::object_t::Container;

/// The library's ordered object is a vector of pairs; its own insertion searches for the key first, which makes
/// reading a vocabulary of 100,000 entries quadratic.
Entries& entries_of(Value& object) { return object.get_ref<Value::object_t&>(); }

/// Keeps of each key its last value in its first place, as Python does. Returns a key that there was twice, if any.
std::optional<std::string> merge_duplicates(Entries& entries) {
  std::unordered_map<std::string_view, std::size_t, SecretHash> first_of;
  first_of.reserve(entries.size());
  std::optional<std::string> duplicate;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto [place, is_new] = first_of.emplace(entries[i].first, i);
    if (is_new) continue;
    if (!duplicate) duplicate = entries[i].first;
    entries[place->second].second = std::move(entries[i].second);
  }
  if (!duplicate) return duplicate;
  Entries kept;
  kept.reserve(first_of.size());
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (first_of.at(entries[i].first) == i) kept.emplace_back(entries[i].first, std::move(entries[i].second));
  entries.swap(kept);
  return duplicate;
}

/// Makes room for one more entry. The vector itself would copy all of them, because their keys are const, and destroy what it
/// has copied, which allocates.
void make_room(Entries& entries) {
  constexpr std::size_t kLeast = 4;
  if (entries.size() < entries.capacity()) return;
  Entries larger;
  larger.reserve(std::max(kLeast, 2 * entries.size()));
  for (auto& [key, value] : entries) larger.emplace_back(key, std::move(value));
  entries.swap(larger);
}

/// The source of a text, which decides how it is read.
enum class From {
  anyone,
  exact_client,  ///< integers of more than 64 bits keep their digits; half of a surrogate pair is U+FFFD
  careful_hand,  ///< a key given twice is an error
  python,        ///< NaN, Infinity and -Infinity are numbers
};

/// Begins a string that stands for one of Python's numbers.
constexpr char kPythonNumber = '\1';

/// `text` with NaN, Infinity and -Infinity, outside of strings, as strings after kPythonNumber.
std::string mark_python_numbers(std::string_view text) {
  std::string marked;
  marked.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    }
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (text.substr(at).starts_with(word)) end = at + word.size();
    const bool is_number = text[at] != '"' && end > at + 1;
    marked += is_number ? fmt::format("\"\\u{:04x}{}\"", kPythonNumber, text.substr(at, end - at)) : text.substr(at, end - at);
    at = end;
  }
  return marked;
}

/// The code unit of an escape like \ud83d that `text` begins with.
std::optional<std::uint32_t> escaped_unit(std::string_view text) {
  constexpr std::size_t kLength = 6;
  if (text.size() < kLength || !text.starts_with("\\u")) return std::nullopt;
  std::uint32_t unit = 0;
  const auto read = std::from_chars(text.data() + 2, text.data() + kLength, unit, 16);
  return read.ptr == text.data() + kLength ? std::optional(unit) : std::nullopt;
}

/// What a text begins with: an escape, or two escapes that are one character.
struct Escape {
  std::size_t n_bytes = 0;
  bool is_half = false;  ///< it is half of a surrogate pair, and the other half is not there
};

Escape escape_of(std::string_view text) {
  constexpr std::uint32_t kHigh = 0xD800 >> 10, kLow = 0xDC00 >> 10;
  const auto unit = escaped_unit(text);
  if (!unit) return {2, false};
  if (*unit >> 10 != kHigh) return {6, *unit >> 10 == kLow};
  const auto next = escaped_unit(text.substr(6));
  return next && *next >> 10 == kLow ? Escape{12, false} : Escape{6, true};
}

bool has_half_pair(std::string_view text) {
  for (std::size_t at = text.find('\\'); at != std::string_view::npos;) {
    const Escape escape = escape_of(text.substr(at));
    if (escape.is_half) return true;
    at = text.find('\\', at + escape.n_bytes);
  }
  return false;
}

/// Reads the bytes of a JSON text, and "\ufffd" for each half of a surrogate pair.
class WholePairs {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  WholePairs() = default;
  explicit WholePairs(std::string_view rest) : rest_(rest) { look(); }

  char operator*() const {
    constexpr std::string_view kReplacement = "\\ufffd";
    return is_half_ ? kReplacement[kReplacement.size() - n_escaped_] : rest_.front();
  }
  WholePairs& operator++() {
    rest_.remove_prefix(1);
    if (n_escaped_ > 0) --n_escaped_;
    look();
    return *this;
  }
  WholePairs operator++(int) {
    const WholePairs before = *this;
    ++*this;
    return before;
  }
  bool operator==(const WholePairs& other) const { return rest_.size() == other.rest_.size(); }

 private:
  void look() {
    if (n_escaped_ > 0) return;
    is_half_ = false;
    if (rest_.empty() || rest_.front() != '\\') return;
    const Escape escape = escape_of(rest_);
    n_escaped_ = std::min(escape.n_bytes, rest_.size());
    is_half_ = escape.is_half;
  }

  std::string_view rest_;
  std::size_t n_escaped_ = 0;  ///< bytes of an escape that are not read yet
  bool is_half_ = false;
};

/// Receives the parser's events. `open_` holds the containers from the root to the innermost one; only the innermost
/// grows, so the pointers stay valid.
class Builder {
 public:
  Builder(const std::function<bool()>& is_cancelled, From from) : is_cancelled_(is_cancelled), from_(from) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& text) {
    if (from_ != From::exact_client || text.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Value::binary({text.begin(), text.end()}));
  }
  bool string(std::string& value) {
    if (from_ == From::python && value.starts_with(kPythonNumber)) return add(std::strtod(value.c_str() + 1, nullptr));
    return add(std::move(value));
  }
  bool binary(Value::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Value::object()); }
  bool start_array(std::size_t) { return open(Value::array()); }
  bool key(std::string& name) {
    Entries& entries = entries_of(*open_.back());
    make_room(entries);
    entries.emplace_back(std::move(name), Value());
    return true;
  }
  bool end_object() {
    const auto duplicate = merge_duplicates(entries_of(*open_.back()));
    if (duplicate && from_ == From::careful_hand) {
      const std::string place = place_of_innermost();
      ambiguity_ = fmt::format("'{}{}{}' is given twice", place, place.empty() ? "" : ".", *duplicate);
      return false;
    }
    open_.pop_back();
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t, const std::string&, const Exception& exception) {
    message_ = exception.what();
    return false;
  }

  Value take_root() { return std::move(root_); }
  const std::string& message() const { return message_; }
  bool was_cancelled() const { return was_cancelled_; }
  /// What is said about a key given twice; empty: nothing.
  const std::string& ambiguity() const { return ambiguity_; }

 private:
  static constexpr std::int64_t kValuesBetweenChecks = 4096;

  /// Whether anybody still wants the result.
  bool count_value() {
    if (++n_values_ % kValuesBetweenChecks == 0 && is_cancelled_) was_cancelled_ = is_cancelled_();
    return !was_cancelled_;
  }
  bool add(Value value) {
    put(std::move(value));
    return count_value();
  }
  /// The innermost container that is open, as in "keys[1]"; "" for the root.
  std::string place_of_innermost() const {
    std::string place;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Value& parent = *open_[i];
      if (parent.is_array())
        place += fmt::format("[{}]", parent.size() - 1);
      else
        place += (place.empty() ? "" : ".") + parent.get_ref<const Value::object_t&>().back().first;
    }
    return place;
  }
  Value* put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Value& parent = *open_.back();
    if (parent.is_array()) {
      auto& list = parent.get_ref<Value::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    Value& field = entries_of(parent).back().second;
    field = std::move(value);
    return &field;
  }
  bool open(Value container) {
    if (open_.size() >= static_cast<std::size_t>(kMaxDepth)) {
      message_ = fmt::format("lists and objects are nested deeper than {}", kMaxDepth);
      return false;
    }
    open_.push_back(put(std::move(container)));
    return count_value();
  }

  const std::function<bool()>& is_cancelled_;
  const From from_;
  std::int64_t n_values_ = 0;
  bool was_cancelled_ = false;
  Value root_;
  Dismantling end_of_root_{root_};  // when there is no memory to build the rest, there is none to end it either
  std::vector<Value*> open_;
  std::string message_;
  std::string ambiguity_;
};

/// The library's message without its code "[json.exception...] " and not longer than a line: it quotes what it read
/// last.
std::string shorten(std::string message) {
  if (const auto end = message.find("] "); message.starts_with("[json.") && end != std::string::npos) message.erase(0, end + 2);
  constexpr std::size_t kMaxLength = 300;
  if (message.size() > kMaxLength) message = message.substr(0, kMaxLength) + "...";
  return message;
}

/// Whether there is an integer of more than 64 bits in a value.
bool has_digits(const Value& value) {
  return value.is_binary() || (value.is_structured() && std::ranges::any_of(value, has_digits));
}

/// The same as the library's text without spaces, with all digits of integers.
void print_exactly(const Value& value, std::string& out) {
  if (value.is_binary()) {
    out += digits_of(value);
  } else if (value.is_array()) {
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ',';
      print_exactly(value[i], out);
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    bool is_first = true;
    for (const auto& [key, member] : value.get_ref<const Value::object_t&>()) {
      if (!std::exchange(is_first, false)) out += ',';
      out += dump(Value(key));
      out += ':';
      print_exactly(member, out);
    }
    out += '}';
  } else {
    out += dump(value);
  }
}

std::string print(const Value& value, int indent) { return value.dump(indent, ' ', false, Value::error_handler_t::replace); }

/// The integer that a number like 16.0 stands for; nullopt for fractions and beyond 2^53, where doubles skip integers.
std::optional<std::int64_t> integer_of(double number) {
  constexpr double kExact = 9007199254740992.0;
  if (!(std::abs(number) <= kExact) || number != std::trunc(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Result<Value> build(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled, From from) {
  // No JSON has a zero byte. The library takes it for the end of the text.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    return fail(ErrorCode::invalid_request, fmt::format("{} is not valid JSON: byte {} is zero", what, zero));
  Builder builder(is_cancelled, from);
  try {
    const bool is_whole = from != From::exact_client || !has_half_pair(text);
    if (is_whole ? Value::sax_parse(text.begin(), text.end(), &builder)
                 : Value::sax_parse(WholePairs(text), WholePairs(), &builder))
      return builder.take_root();
  } catch (const Value::exception& exception) {
    return fail(ErrorCode::invalid_request, fmt::format("{} is not valid JSON: {}", what, shorten(exception.what())));
  }
  if (builder.was_cancelled())
    return fail(ErrorCode::unavailable, fmt::format("{} is not read to its end: no client waits for it any more", what));
  if (!builder.ambiguity().empty())
    return fail(ErrorCode::invalid_request, fmt::format("{}: {}", what, shorten(builder.ambiguity())));
  return fail(ErrorCode::invalid_request, fmt::format("{} is not valid JSON: {}", what, shorten(builder.message())));
}

}  // namespace

Result<Value> parse_cancellable(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled) {
  return build(text, what, is_cancelled, From::anyone);
}

Result<Value> parse_exact(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled) {
  return build(text, what, is_cancelled, From::exact_client);
}

Result<Value> parse(std::string_view text, std::string_view what) { return parse_cancellable(text, what, {}); }

Result<Value> parse_unambiguous(std::string_view text, std::string_view what) {
  return build(text, what, {}, From::careful_hand);
}

Result<Value> parse_of_python(std::string_view text, std::string_view what) {
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos) return parse(text, what);
  return build(mark_python_numbers(text), what, {}, From::python);
}

Result<Value> parse_file(const std::filesystem::path& path) {
  BATON_TRY(const std::string text, read_file(path));
  auto value = parse_of_python(text, path.string());
  if (!value) value.error().code = ErrorCode::invalid_data;
  return value;
}

std::string dump(const Value& value) {
  if (!value.is_binary() && !value.is_structured()) return print(value, -1);
  if (!has_digits(value)) return print(value, -1);
  std::string out;
  print_exactly(value, out);
  return out;
}

std::string_view digits_of(const Value& value) noexcept {
  const auto* const bytes = value.get_ptr<const Value::binary_t*>();
  return bytes == nullptr ? std::string_view() : std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

std::string dump_pretty(const Value& value) { return print(value, 2); }

const Value* find(const Value& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  for (const auto& [name, value] : object.get_ref<const Value::object_t&>())
    if (name == key) return &value;
  return nullptr;
}

std::string_view describe_type(const Value& value) {
  switch (value.type()) {
    case Value::value_t::null: return "null";
    case Value::value_t::object: return "an object";
    case Value::value_t::array: return "a list";
    case Value::value_t::string: return "a string";
    case Value::value_t::boolean: return "a boolean";
    case Value::value_t::number_integer:
    case Value::value_t::number_unsigned:
    case Value::value_t::binary: return "an integer";
    case Value::value_t::number_float: return "a number";
    case Value::value_t::discarded: return "nothing";
  }
  return "nothing";
}

tl::unexpected<Error> wrong_type(std::string_view key, std::string_view expected, const Value& found) {
  return fail(ErrorCode::invalid_request, fmt::format("'{}' must be {}, not {}", key, expected, describe_type(found)),
              std::string(key));
}

tl::unexpected<Error> missing(std::string_view key) {
  return fail(ErrorCode::invalid_request, fmt::format("'{}' is missing", key), std::string(key));
}

Result<std::int64_t> to_int64(const Value& value, std::string_view key, std::int64_t least, std::int64_t most) {
  const auto out_of_range = [&](auto found) {
    return fail(ErrorCode::invalid_request, fmt::format("'{}' must be from {} to {}, not {}", key, least, most, found),
                std::string(key));
  };
  std::int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto wide = value.get<std::uint64_t>();
    if (wide > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return out_of_range(wide);
    number = static_cast<std::int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    const auto integer = integer_of(value.get<double>());
    if (!integer) {
      return fail(ErrorCode::invalid_request, fmt::format("'{}' must be an integer, not {}", key, value.get<double>()),
                  std::string(key));
    }
    number = *integer;
  } else if (value.is_binary()) {
    constexpr std::size_t kShownDigits = 40;
    return out_of_range(digits_of(value).substr(0, kShownDigits));
  } else {
    return wrong_type(key, "an integer", value);
  }
  if (number < least || number > most) return out_of_range(number);
  return number;
}

Result<std::uint64_t> to_uint64(const Value& value, std::string_view key) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  BATON_TRY(const std::int64_t number, to_int64(value, key, 0, std::numeric_limits<std::int64_t>::max()));
  return static_cast<std::uint64_t>(number);
}

Result<double> to_double(const Value& value, std::string_view key, double most) {
  if (!value.is_number() && !value.is_binary()) return wrong_type(key, "a number", value);
  const double number = value.is_binary() ? std::strtod(std::string(digits_of(value)).c_str(), nullptr) : value.get<double>();
  if (!(std::abs(number) <= most))
    return fail(ErrorCode::invalid_request, fmt::format("'{}' must be from {} to {}, not {}", key, -most, most, number),
                std::string(key));
  return number;
}

}  // namespace baton::json
