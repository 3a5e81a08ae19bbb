/// str, repr and JSON.
#include "jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

constexpr int kMaxPrintDepth = 300;

/// Text that stops growing at the arena's memory limit, so that a value that contains itself ends.
class Writer {
 public:
  explicit Writer(Arena& arena) : arena_(arena) {}
  bool ok() const { return !arena_.is_exhausted(); }
  void put(std::string_view piece) {
    if (!arena_.spend_text(piece.size()) || !arena_.reserve(text_.size() + piece.size())) return;
    text_ += piece;
  }
  /// Appends what `write(piece, out)` makes of each character's piece of `text`, in chunks whose room is counted.
  template <class Write>
  void put_characters(std::string_view text, Write write) {
    constexpr std::size_t kChunkBytes = 4096;
    std::string chunk;
    for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
      write(chunk, char_at(text, i));
      if (chunk.size() < kChunkBytes) continue;
      put_chunk(chunk);
      if (!ok()) return;
    }
    put_chunk(chunk);
  }
  bool enter(int depth) {
    if (depth > kMaxPrintDepth) arena_.exhaust("depth");
    return arena_.has_stack();
  }
  std::string take() { return std::move(text_); }

 private:
  void put_chunk(std::string& chunk) {
    if (arena_.spend_characters(chunk.size())) put(chunk);
    chunk.clear();
  }

  Arena& arena_;
  std::string text_;
};

void put_repr(Writer& out, Value value, int depth);

/// The quote that repr puts around `text`.
char quote_of(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  return doubled ? '"' : '\'';
}

void append_represented(std::string& out, char32_t c, char quote) {
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out += '\\';
    append_utf8(out, c);
  } else if (c == '\n' || c == '\r' || c == '\t') {
    out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
  } else if (is_printable(c)) {
    append_utf8(out, c);
  } else {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
    out += buffer;
  }
}

void put_quoted(Writer& out, std::string_view text) {
  const char quote = quote_of(text);
  out.put({&quote, 1});
  out.put_characters(text, [quote](std::string& chunk, char32_t c) { append_represented(chunk, c, quote); });
  out.put({&quote, 1});
}

void put_items(Writer& out, const std::vector<Value>& items, int depth) {
  for (std::size_t i = 0; i < items.size() && out.ok(); ++i) {
    if (i > 0) out.put(", ");
    put_repr(out, items[i], depth + 1);
  }
}

void put_range(Writer& out, const std::vector<Value>& items) {
  const std::int64_t step = items.size() > 1 ? items[1].as_int() - items[0].as_int() : 1;
  const std::int64_t start = items.empty() ? 0 : items.front().as_int();
  const std::int64_t stop = items.empty() ? 0 : items.back().as_int() + step;
  out.put("range(" + std::to_string(start) + ", " + std::to_string(stop) + (step == 1 ? "" : ", " + std::to_string(step)) +
          ")");
}

void put_list(Writer& out, Value value, int depth) {
  const List& list = *value.as_list();
  switch (list.flavor) {
    case List::Flavor::generator: return out.put("<generator object>");
    case List::Flavor::range: return put_range(out, list.items);
    case List::Flavor::list:
      out.put("[");
      put_items(out, list.items, depth);
      return out.put("]");
    case List::Flavor::tuple:
      out.put("(");
      put_items(out, list.items, depth);
      return out.put(list.items.size() == 1 ? ",)" : ")");
    default:
      out.put(type_name(value));
      out.put("([");
      put_items(out, list.items, depth);
      return out.put("])");
  }
}

void put_dict(Writer& out, const Dict& dict, int depth) {
  out.put("{");
  for (std::size_t i = 0; i < dict.entries.size() && out.ok(); ++i) {
    if (i > 0) out.put(", ");
    put_repr(out, dict.entries[i].first, depth + 1);
    out.put(": ");
    put_repr(out, dict.entries[i].second, depth + 1);
  }
  out.put("}");
}

void put_repr(Writer& out, Value value, int depth) {
  if (!out.enter(depth)) return;
  switch (value.kind()) {
    case Kind::undefined: return out.put("Undefined");
    case Kind::none: return out.put("None");
    case Kind::boolean: return out.put(value.as_bool() ? "True" : "False");
    case Kind::integer: return out.put(std::to_string(value.as_int()));
    case Kind::floating: return out.put(float_text(value.as_double()));
    case Kind::string:
      if (value.is_digits()) return out.put(value.as_string());
      if (value.is_markup()) out.put("Markup(");
      put_quoted(out, value.as_string());
      return out.put(value.is_markup() ? ")" : "");
    case Kind::list: return put_list(out, value, depth);
    case Kind::dict: return put_dict(out, *value.as_dict(), depth);
    case Kind::name_space:
      out.put("<Namespace ");
      put_dict(out, *value.as_dict(), depth);
      return out.put(">");
    case Kind::function: {
      const Function& function = *value.as_function();
      if (function.macro != nullptr) return out.put("<Macro " + represent(function.name) + ">");
      return out.put("<function " + std::string(function.name) + ">");
    }
    case Kind::loop:
      return out.put("<LoopContext " + std::to_string(value.as_loop()->index0 + 1) + "/" +
                     std::to_string(value.as_loop()->items.size()) + ">");
  }
}

void append_json_character(std::string& quoted, char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': quoted += "\\\""; return;
    case '\\': quoted += "\\\\"; return;
    case '\n': quoted += "\\n"; return;
    case '\r': quoted += "\\r"; return;
    case '\t': quoted += "\\t"; return;
    case '\f': quoted += "\\f"; return;
    case '\b': quoted += "\\b"; return;
    default: break;
  }
  char buffer[16];
  if (c >= 0x20 && (c < 0x7F || (!ensure_ascii))) {
    append_utf8(quoted, c);
  } else if (c == 0x7F) {
    quoted += '\x7f';
  } else if (c < 0x10000) {
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
    quoted += buffer;
  } else {
    const unsigned pair = static_cast<unsigned>(c) - 0x10000;
    std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
    quoted += buffer;
  }
}

void put_json_string(Writer& out, std::string_view text, bool ensure_ascii) {
  out.put("\"");
  out.put_characters(text, [&](std::string& chunk, char32_t c) { append_json_character(chunk, c, ensure_ascii); });
  out.put("\"");
}

class JsonWriter {
 public:
  JsonWriter(Arena& arena, const JsonStyle& style) : arena_(arena), style_(style), out_(arena) {}

  Result<Value> run(Value value) {
    BATON_TRY_VOID(put(value, 0));
    if (!out_.ok()) return fail_exhausted(arena_);
    return arena_.text(out_.take());
  }

 private:
  void new_line(int level) {
    if (!style_.multi_line) return;
    out_.put("\n");
    for (int i = 0; i < level; ++i) out_.put(style_.indent);
  }

  Result<void> put(Value value, int level) {
    if (!out_.enter(level)) return fail_exhausted(arena_);
    switch (value.kind()) {
      case Kind::none: out_.put("null"); return {};
      case Kind::boolean: out_.put(value.as_bool() ? "true" : "false"); return {};
      case Kind::integer: out_.put(std::to_string(value.as_int())); return {};
      case Kind::floating: out_.put(number(value.as_double())); return {};
      case Kind::string:
        if (value.is_digits())
          out_.put(value.as_string());
        else
          put_json_string(out_, value.as_string(), style_.ensure_ascii);
        return {};
      case Kind::dict: return put_object(*value.as_dict(), level);
      case Kind::list:
        if (value.as_list()->flavor == List::Flavor::list || value.as_list()->is_tuple())
          return put_array(*value.as_list(), level);
        break;
      case Kind::undefined: return type_error(undefined_message(value) + ", so it cannot be written as JSON");
      default: break;
    }
    return type_error("an object of type " + std::string(type_name(value)) + " cannot be written as JSON");
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  Result<void> put_array(const List& list, int level) {
    if (list.items.empty()) {
      out_.put("[]");
      return {};
    }
    out_.put("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.put(style_.item_separator);
      new_line(level + 1);
      BATON_TRY_VOID(put(list.items[i], level + 1));
    }
    new_line(level);
    out_.put("]");
    return {};
  }

  Result<void> put_object(const Dict& dict, int level) {
    if (dict.entries.empty()) {
      out_.put("{}");
      return {};
    }
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    if (style_.sort_keys) {
      for (const auto& [key, value] : entries)
        if (!key.is(Kind::string)) return type_error("sort_keys needs keys that are strings");
      for (const auto& [key, value] : entries)
        for (std::size_t n = entries.size(); n > 0; n /= 2) arena_.spend_key(key);  // it is compared so often
      if (arena_.is_exhausted()) return fail_exhausted(arena_);
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first.as_string() < b.first.as_string(); });
    }
    out_.put("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.put(style_.item_separator);
      new_line(level + 1);
      BATON_TRY_VOID(put_key(entries[i].first));
      out_.put(style_.key_separator);
      BATON_TRY_VOID(put(entries[i].second, level + 1));
    }
    new_line(level);
    out_.put("}");
    return {};
  }

  Result<void> put_key(Value key) {
    if (key.is(Kind::string)) {
      put_json_string(out_, key.as_string(), style_.ensure_ascii);
      return {};
    }
    if (!key.is_number() && !key.is(Kind::none))
      return type_error("keys of JSON objects cannot be of type " + std::string(type_name(key)));
    out_.put("\"");
    BATON_TRY_VOID(put(key, 0));
    out_.put("\"");
    return {};
  }

  Arena& arena_;
  const JsonStyle& style_;
  Writer out_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  if (exponent >= 16 || exponent < -4) return std::string(text);
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string result = text[0] == '-' ? "-" : "";
  if (exponent < 0) return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return result + digits + std::string(whole - digits.size(), '0') + ".0";
  return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string represent(std::string_view text) {
  const char quote = quote_of(text);
  std::string result(1, quote);
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) append_represented(result, char_at(text, i), quote);
  return result + quote;
}

std::string represent(Arena& arena, Value value) {
  Writer out(arena);
  put_repr(out, value, 0);
  return out.take();
}

Value to_text(Arena& arena, Value value) {
  if (value.is(Kind::string)) return value;
  if (value.is(Kind::undefined)) return Value::string("");
  return arena.text(represent(arena, value));
}

Value escape_html(Arena& arena, Value text) {
  if (text.is_markup()) return text;
  const std::string_view plain = text.as_string();
  const auto is_escaped = [](char c) { return std::string_view("&<>\"'").find(c) != std::string_view::npos; };
  constexpr std::size_t kMoreBytes = 4;  // that an entity has at most more than its character
  if (!arena.spend_characters(plain.size())) return Value::string("");
  const auto n_escaped = static_cast<std::size_t>(std::count_if(plain.begin(), plain.end(), is_escaped));
  if (!arena.reserve(plain.size() + kMoreBytes * n_escaped)) return Value::string("");
  std::string result;
  for (const char c : plain) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&#34;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return Value::markup(arena.text(std::move(result)));
}

Result<Value> to_json(Arena& arena, Value value, const JsonStyle& style) { return JsonWriter(arena, style).run(value); }

}  // namespace baton::jinja
