/// The `normalizer` of a tokenizer.json: how text is rewritten before it is cut into words.
#include "text/split/normalizer.h"

#include <utility>

#include "text/split/base64.h"
#include "text/split/component.h"
#include "text/split/unicode.h"
#include "text/tables/character_tables.h"

namespace baton {

namespace {

constexpr std::string_view kNormalizer = "normalizer";

std::optional<unicode::NormalForm> normal_form_of(std::string_view type) {
  if (type == "NFC") return unicode::NormalForm::c;
  if (type == "NFD") return unicode::NormalForm::d;
  if (type == "NFKC") return unicode::NormalForm::kc;
  if (type == "NFKD") return unicode::NormalForm::kd;
  return std::nullopt;
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const json::Value& value) {
  Normalizer normalizer;
  if (!value.is_null()) BATON_TRY_VOID(normalizer.add(value, 0));
  return normalizer;
}

Result<void> Normalizer::add(const json::Value& value, int depth) {
  BATON_TRY(const std::string type, component::type_of(value, kNormalizer, depth, steps_.size()));
  if (type == "Sequence") {
    BATON_TRY(const json::Value* members, component::members_of(value, kNormalizer, "normalizers"));
    for (const json::Value& member : *members) BATON_TRY_VOID(add(member, depth + 1));
  } else if (type == "Prepend") {
    BATON_TRY(std::string text, component::get<std::string>(value, "Prepend", "prepend"));
    steps_.push_back(Prepend{std::move(text)});
  } else if (type == "Replace") {
    return add_replace(value);
  } else if (type == "Strip") {
    BATON_TRY(const bool left, component::get_or<bool>(value, "Strip", "strip_left", true));
    BATON_TRY(const bool right, component::get_or<bool>(value, "Strip", "strip_right", true));
    steps_.push_back(Strip{left, right});
  } else if (type == "Precompiled") {
    return add_precompiled(value);
  } else if (type == "Lowercase") {
    steps_.emplace_back(Characters::lowercase);
  } else if (type == "Nmt") {
    steps_.emplace_back(Characters::nmt);
  } else if (type == "StripAccents") {
    steps_.emplace_back(Characters::accents);
  } else if (type == "ByteLevel") {
    steps_.emplace_back(Characters::bytes);
  } else if (const auto form = normal_form_of(type)) {
    steps_.emplace_back(*form);
  } else {
    return component::unsupported(kNormalizer, type);
  }
  return {};
}

Result<void> Normalizer::add_replace(const json::Value& value) {
  const json::Value* pattern_value = json::find(value, "pattern");
  if (pattern_value == nullptr) return fail(ErrorCode::invalid_data, "normalizer Replace: no pattern");
  BATON_TRY(Pattern pattern, Pattern::from_json(*pattern_value, "normalizer Replace"));
  BATON_TRY(std::string content, component::get<std::string>(value, "Replace", "content"));
  steps_.push_back(Replace{std::move(pattern), std::move(content)});
  return {};
}

Result<void> Normalizer::add_precompiled(const json::Value& value) {
  BATON_TRY(const std::string base64, component::get<std::string>(value, "Precompiled", "precompiled_charsmap"));
  const std::optional<std::string> bytes = bytes_of_base64(base64);
  if (!bytes) return fail(ErrorCode::invalid_data, "normalizer Precompiled: precompiled_charsmap is not base64");
  BATON_TRY(Charsmap map, Charsmap::from_bytes(*bytes));
  steps_.emplace_back(std::move(map));
  return {};
}

namespace {

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const unicode::Step step = unicode::decode_front(text);
    if (!unicode::is_space(step.code_point)) break;
    text.remove_prefix(step.n_bytes);
  }
  while (right && !text.empty()) {
    const std::string_view last = unicode::last_character(text);
    if (!unicode::is_space(unicode::decode_front(last).code_point)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

/// What SentencePiece's rules "nmt" make of a character: nothing, a space, or itself.
void append_nmt(std::string& out, char32_t c, std::string_view character) {
  const bool is_dropped =
      (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  if (is_dropped) return;
  const bool is_space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  out += is_space ? " " : character;
}

}  // namespace

std::string Normalizer::rewrite(std::string_view text, Characters step, WorkMeter& meter) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty() && meter.spend(1)) {
    const unicode::Step decoded = unicode::decode_front(text);
    const std::string_view character = text.substr(0, decoded.n_bytes);
    const char32_t c = decoded.code_point;
    text.remove_prefix(decoded.n_bytes);
    switch (step) {
      case Characters::lowercase: unicode::append_lowercase(out, c); break;
      case Characters::nmt: append_nmt(out, c, character); break;
      case Characters::accents: out += unicode::is_combining_mark(c) ? "" : character; break;
      case Characters::bytes:
        for (const char byte : character)
          unicode::append_utf8(out, unicode::character_of_byte(static_cast<unsigned char>(byte)));
        break;
    }
  }
  return out;
}

/// Nullopt where Prepend or Replace would make more than `max_bytes`. No other step makes a text much longer.
std::optional<std::string> Normalizer::apply(const Step& step, const std::string& text, std::size_t max_bytes,
                                             WorkMeter& meter) {
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    if (text.empty()) return text;
    if (prepend->text.size() > max_bytes) return std::nullopt;
    return prepend->text + text;
  }
  if (const auto* replace = std::get_if<Replace>(&step))
    return replace->pattern.replace_all_within(max_bytes, text, replace->content, meter);
  if (const auto* sides = std::get_if<Strip>(&step)) return std::string(strip(text, sides->left, sides->right));
  if (const auto* characters = std::get_if<Characters>(&step)) return rewrite(text, *characters, meter);
  if (const auto* map = std::get_if<Charsmap>(&step)) return map->normalize(text, max_bytes, meter);
  // The library takes four bytes for each, and about as long as for the steps above.
  if (!meter.spend(static_cast<std::int64_t>(text.size())) || !meter.write(4 * text.size())) return std::nullopt;
  return unicode::normalized_by_unicode_9(text, std::get<unicode::NormalForm>(step));
}

std::string Normalizer::normalize(std::string_view text, WorkMeter& meter) const {
  const std::size_t max_bytes = 64 * text.size() + 256;
  std::string out(text);
  for (const Step& step : steps_) {
    if (!meter.pass(out.size()) || !meter.write(out.size())) break;
    if (auto next = apply(step, out, max_bytes, meter); next && next->size() <= max_bytes) out = *std::move(next);
  }
  return out;
}

}  // namespace baton
