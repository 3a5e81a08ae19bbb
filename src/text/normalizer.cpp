/// The `normalizer` of a tokenizer.json: how text is rewritten before it is cut into words.
#include "text/normalizer.h"

#include <optional>
#include <utility>

#include "text/component.h"
#include "text/unicode.h"

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
    const json::Value* pattern_value = json::find(value, "pattern");
    if (pattern_value == nullptr) return fail(ErrorCode::invalid_data, "normalizer Replace: no pattern");
    BATON_TRY(Pattern pattern, Pattern::from_json(*pattern_value, "normalizer Replace"));
    BATON_TRY(std::string content, component::get<std::string>(value, "Replace", "content"));
    steps_.push_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    BATON_TRY(const bool left, component::get_or<bool>(value, "Strip", "strip_left", true));
    BATON_TRY(const bool right, component::get_or<bool>(value, "Strip", "strip_right", true));
    steps_.push_back(Strip{left, right});
  } else if (const auto form = normal_form_of(type)) {
    steps_.emplace_back(*form);
  } else {
    return component::unsupported(kNormalizer, type);
  }
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

}  // namespace

std::string Normalizer::normalize(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!out.empty()) out.insert(0, prepend->text);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      out = replace->pattern.replace_all(out, replace->content);
    } else if (const auto* sides = std::get_if<Strip>(&step)) {
      out = std::string(strip(out, sides->left, sides->right));
    } else {
      out = unicode::normalized(out, std::get<unicode::NormalForm>(step));
    }
  }
  return out;
}

}  // namespace baton
