/// The `decoder` of a tokenizer.json: joins the texts of tokens, as a whole or token by token.
#include "text/tokenizer/token_decoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "text/split/component.h"

namespace baton {

namespace {

constexpr std::string_view kDecoder = "decoder";
constexpr int kMaxStrip = 1024;
constexpr std::size_t kMaxGrowth = 4096;

/// The byte that "<0xNN>" stands for.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char digit : token.substr(3, 2)) {
    const std::size_t place = std::string_view("0123456789abcdefABCDEF").find(digit);
    if (place == std::string_view::npos) return std::nullopt;
    value = 16 * value + static_cast<unsigned>(place < 16 ? place : place - 6);
  }
  return static_cast<char>(static_cast<unsigned char>(value));
}

/// The bytes that GPT-2's characters stand for, or the token's own where it has another character.
std::string bytes_of_characters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::string_view rest = token; !rest.empty();) {
    const unicode::Step step = unicode::decode_front(rest);
    const std::optional<unsigned char> byte = unicode::byte_of_character(step.code_point);
    if (!byte) return std::string(token);
    bytes.push_back(static_cast<char>(*byte));
    rest.remove_prefix(step.n_bytes);
  }
  return bytes;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with) {
  return Pattern::literal(std::string(old)).replace_all(text, with);
}

/// Removes the spaces before punctuation and contractions, in Transformers' order.
std::string cleaned_up(std::string text) {
  if (text.find(' ') == std::string::npos) return text;
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [old, with] : kRules) text = replaced(text, old, with);
  return text;
}

std::string_view strip(std::string_view text, std::string_view character, int start, int stop) {
  for (int i = 0; i < start && text.starts_with(character); ++i) text.remove_prefix(character.size());
  for (int i = 0; i < stop && text.ends_with(character); ++i) text.remove_suffix(character.size());
  return text;
}

/// Number of bytes at the end of `text` that are an incomplete beginning of `literal`.
std::size_t length_of_beginning(std::string_view text, std::string_view literal) {
  for (std::size_t length = std::min(text.size(), literal.size() - 1); length > 0; --length)
    if (text.ends_with(literal.substr(0, length))) return length;
  return 0;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::from_json(const json::Value& value) {
  TokenDecoder decoder;
  if (value.is_null())
    decoder.steps_.push_back({.kind = Step::Kind::join_by_space});
  else
    BATON_TRY_VOID(decoder.add(value, 0));
  return decoder;
}

TokenDecoder TokenDecoder::for_sentencepiece(bool adds_space) {
  TokenDecoder decoder;
  decoder.steps_.push_back({.kind = Step::Kind::replace, .pattern = Pattern::literal("▁"), .content = " "});
  decoder.steps_.push_back({.kind = Step::Kind::byte_fallback});
  decoder.steps_.push_back({.kind = Step::Kind::strip, .content = " ", .start = adds_space ? 1 : 0, .is_fused = true});
  return decoder;
}

Result<void> TokenDecoder::add(const json::Value& value, int depth) {
  BATON_TRY(const std::string type, component::type_of(value, kDecoder, depth, steps_.size()));
  if (type != "Sequence") return add_step(type, value);
  BATON_TRY(const json::Value* members, component::members_of(value, kDecoder, "decoders"));
  for (const json::Value& member : *members) BATON_TRY_VOID(add(member, depth + 1));
  return {};
}

/// For a step that puts `n_content` bytes in place of `literal`, or of what a regular expression (null) matches.
Result<void> TokenDecoder::count_growth(const std::string* literal, std::size_t n_content) {
  const bool may_be_empty = literal == nullptr || literal->empty();  // an empty text is found between all characters
  const std::size_t times = may_be_empty ? 2 * n_content + 1 : (n_content + literal->size() - 1) / literal->size();
  growth_ *= std::clamp<std::size_t>(times, 1, kMaxGrowth + 1);
  if (growth_ <= kMaxGrowth) return {};
  return fail(ErrorCode::invalid_data,
              fmt::format("decoder: its steps could make a text more than {} times as long", kMaxGrowth));
}

Result<void> TokenDecoder::add_step(std::string_view type, const json::Value& value) {
  Step step;
  step.is_fused = is_fused_;
  const bool is_done_after_fuse = type == "Fuse" || type == "Replace" || type == "Strip";
  if (is_fused_ && !is_done_after_fuse)
    return component::unsupported(kDecoder, fmt::format("{} after Fuse or ByteLevel", type));
  if (type == "Fuse") {
    is_fused_ = true;
  } else if (type == "ByteFallback") {
    step.kind = Step::Kind::byte_fallback;
  } else if (type == "ByteLevel") {
    step.kind = Step::Kind::byte_level;
    is_fused_ = true;
  } else if (type == "Replace") {
    step.kind = Step::Kind::replace;
    const json::Value* pattern = json::find(value, "pattern");
    if (pattern == nullptr) return fail(ErrorCode::invalid_data, "decoder Replace: no pattern");
    BATON_TRY(step.pattern, Pattern::from_json(*pattern, "decoder Replace"));
    if (is_fused_ && step.pattern->as_literal() == nullptr)
      return component::unsupported(kDecoder, "Replace of a Regex after Fuse or ByteLevel");
    BATON_TRY(step.content, component::get<std::string>(value, "Replace", "content"));
    BATON_TRY_VOID(count_growth(step.pattern->as_literal(), step.content.size()));
  } else if (type == "Strip") {
    step.kind = Step::Kind::strip;
    BATON_TRY(step.content, component::get<std::string>(value, "Strip", "content"));
    if (step.content.empty() || unicode::decode_front(step.content).n_bytes != step.content.size())
      return fail(ErrorCode::invalid_data, "decoder Strip: the content must be one character");
    BATON_TRY(step.start, component::get_or<int>(value, "Strip", "start", 0));
    BATON_TRY(step.stop, component::get_or<int>(value, "Strip", "stop", 0));
    if (step.start < 0 || step.start > kMaxStrip || step.stop < 0 || step.stop > kMaxStrip)
      return fail(ErrorCode::invalid_data, fmt::format("decoder Strip: start and stop must be 0 to {}", kMaxStrip));
  } else if (type == "Metaspace") {
    step.kind = Step::Kind::metaspace;
    BATON_TRY(step.content, component::get<std::string>(value, "Metaspace", "replacement"));
    BATON_TRY(const bool adds_space, component::get_or<bool>(value, "Metaspace", "add_prefix_space", true));
    BATON_TRY(const std::string scheme,
              component::get_or<std::string>(value, "Metaspace", "prepend_scheme", adds_space ? "always" : "never"));
    step.strips_first = scheme != "never";
    step.pattern = Pattern::literal(step.content);
    BATON_TRY_VOID(count_growth(&step.content, 1));
  } else if (type == "BPEDecoder") {
    step.kind = Step::Kind::word_end;
    BATON_TRY(step.content, component::get_or<std::string>(value, type, "suffix", "</w>"));
    if (step.content.empty()) return fail(ErrorCode::invalid_data, "decoder BPEDecoder: the suffix is empty");
  } else {
    return component::unsupported(kDecoder, type);
  }
  steps_.push_back(std::move(step));
  return {};
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  std::string text(token);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::join_by_space: text.insert(0, 1, ' '); break;
      case Step::Kind::replace: text = step.pattern->replace_all(text, step.content); break;
      case Step::Kind::byte_fallback:
        // The next steps are made for text and would leave a single byte unchanged.
        if (const std::optional<char> byte = byte_of_token(text)) return std::string(1, *byte);
        break;
      case Step::Kind::fuse: break;
      case Step::Kind::strip:
        if (!step.is_fused) text = std::string(strip(text, step.content, step.start, step.stop));
        break;
      case Step::Kind::byte_level: return bytes_of_characters(text);
      case Step::Kind::metaspace: text = step.pattern->replace_all(text, " "); break;
      case Step::Kind::word_end: text = replaced(text, step.content, " "); break;
      case Step::Kind::clean_up: break;
    }
  }
  return text;
}

TokenDecoder::Stream::Stream(const TokenDecoder& decoder) : decoder_(decoder), states_(decoder.steps_.size()) {}

void TokenDecoder::Stream::push(std::string_view token, std::string& out) { feed(0, token, out); }

void TokenDecoder::Stream::drop_held() {
  for (std::size_t step = 0; step < states_.size(); ++step) {
    std::string& held = states_[step].held;
    switch (decoder_.steps_[step].kind) {
      // The end of a word is a space as soon as there is a next token.
      case Step::Kind::word_end: held = held.empty() ? "" : decoder_.steps_[step].content; break;
      default: held.clear();
    }
  }
}

void TokenDecoder::Stream::finish(std::string& out) {
  for (std::size_t step = 0; step < states_.size(); ++step) flush(step, out);
}

void TokenDecoder::Stream::feed(std::size_t index, std::string_view token, std::string& out) {
  if (index == states_.size()) {
    out += token;
    return;
  }
  const Step& step = decoder_.steps_[index];
  State& state = states_[index];
  const bool is_first = state.is_first;
  state.is_first = false;
  switch (step.kind) {
    case Step::Kind::join_by_space:
      if (!is_first) feed(index + 1, " ", out);
      feed(index + 1, token, out);
      break;
    case Step::Kind::replace: feed_replace(index, token, out); break;
    case Step::Kind::byte_fallback:
      if (const std::optional<char> byte = byte_of_token(token)) {
        state.held.push_back(*byte);
      } else {
        end_bytes(index, out);
        feed(index + 1, token, out);
      }
      break;
    case Step::Kind::fuse: feed(index + 1, token, out); break;
    case Step::Kind::strip: feed_strip(index, token, out); break;
    case Step::Kind::byte_level: {
      std::string text;
      state.utf8.push(bytes_of_characters(token), text);
      feed(index + 1, text, out);
      break;
    }
    case Step::Kind::metaspace:
      feed(index + 1, step.pattern->replace_all(token, is_first && step.strips_first ? "" : " "), out);
      break;
    case Step::Kind::word_end:
      if (!state.held.empty()) feed(index + 1, replaced(std::exchange(state.held, {}), step.content, " "), out);
      if (token.find(step.content) == std::string_view::npos)
        feed(index + 1, token, out);
      else
        state.held = token;
      break;
    case Step::Kind::clean_up: feed_clean_up(index, token, out); break;
  }
}

void TokenDecoder::Stream::feed_replace(std::size_t index, std::string_view token, std::string& out) {
  const Step& step = decoder_.steps_[index];
  State& state = states_[index];
  if (!step.is_fused || step.pattern->as_literal()->empty()) {
    feed(index + 1, step.pattern->replace_all(token, step.content), out);
    return;
  }
  const std::string text = std::move(state.held) + std::string(token);
  const std::vector<TextRange> matches = step.pattern->find_all(text);
  const std::string_view tail = std::string_view(text).substr(matches.empty() ? 0 : matches.back().end);
  state.held = tail.substr(tail.size() - length_of_beginning(tail, *step.pattern->as_literal()));
  const std::string_view certain = std::string_view(text).substr(0, text.size() - state.held.size());
  feed(index + 1, step.pattern->replace_all(certain, step.content), out);
}

void TokenDecoder::Stream::feed_strip(std::size_t index, std::string_view token, std::string& out) {
  const Step& step = decoder_.steps_[index];
  State& state = states_[index];
  if (!step.is_fused) {
    feed(index + 1, strip(token, step.content, step.start, step.stop), out);
    return;
  }
  while (!state.is_front_done && !token.empty()) {
    state.is_front_done = state.n_stripped == step.start || !token.starts_with(step.content);
    if (state.is_front_done) break;
    token.remove_prefix(step.content.size());
    ++state.n_stripped;
  }
  const std::string text = std::move(state.held) + std::string(token);
  const std::string_view certain = strip(text, step.content, 0, step.stop);
  state.held = text.substr(certain.size());
  feed(index + 1, certain, out);
}

/// No rule reaches over a space after a character that is neither space nor apostrophe, so what stands before the last
/// such space is final.
void TokenDecoder::Stream::feed_clean_up(std::size_t index, std::string_view token, std::string& out) {
  std::string& held = states_[index].held;
  const std::size_t n_known = held.size();
  held += token;
  std::size_t cut = 0;
  for (std::size_t at = held.size(); at-- > std::max<std::size_t>(n_known, 1);) {
    if (held[at] != ' ' || held[at - 1] == ' ' || held[at - 1] == '\'') continue;
    cut = at;
    break;
  }
  if (cut == 0) return;
  feed(index + 1, cleaned_up(held.substr(0, cut)), out);
  held.erase(0, cut);
}

/// A run of bytes is one text if it is valid UTF-8 as a whole; otherwise each byte becomes U+FFFD. So the run is held
/// back until it ends.
void TokenDecoder::Stream::end_bytes(std::size_t index, std::string& out) {
  const std::string bytes = std::move(states_[index].held);
  states_[index].held.clear();
  if (unicode::is_valid_utf8(bytes)) {
    if (!bytes.empty()) feed(index + 1, bytes, out);
    return;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) feed(index + 1, unicode::kReplacementUtf8, out);
}

void TokenDecoder::Stream::flush(std::size_t index, std::string& out) {
  const Step& step = decoder_.steps_[index];
  State& state = states_[index];
  switch (step.kind) {
    case Step::Kind::replace:
      if (!state.held.empty()) feed(index + 1, state.held, out);
      break;
    case Step::Kind::byte_fallback: end_bytes(index, out); break;
    case Step::Kind::byte_level: {
      std::string text;
      state.utf8.finish(text);
      if (!text.empty()) feed(index + 1, text, out);
      break;
    }
    case Step::Kind::word_end:
      if (!state.held.empty()) feed(index + 1, replaced(state.held, step.content, ""), out);
      break;
    case Step::Kind::clean_up:
      if (!state.held.empty()) feed(index + 1, cleaned_up(state.held), out);
      break;
    case Step::Kind::join_by_space:
    case Step::Kind::fuse:
    case Step::Kind::strip:
    case Step::Kind::metaspace: break;
  }
}

}  // namespace baton
