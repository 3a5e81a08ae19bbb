/// Words of headers. Source: what openai-harmony 0.0.8 makes of them (bench/results/harmony.md).
#include "parsers/harmony/header.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace baton::parsers::harmony {
namespace {

constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kTo = "to=";
constexpr std::array<std::string_view, 4> kOtherRoles{"user", "system", "developer", "tool"};

bool is_other_role(std::string_view word) {
  return std::find(kOtherRoles.begin(), kOtherRoles.end(), word) != kOtherRoles.end();
}

constexpr std::string_view kBlanks = " \n\r\t\f\v";

bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t from = i;
    while (i < text.size() && !is_blank(text[i])) ++i;
    if (i > from) words.push_back(text.substr(from, i - from));
    while (i < text.size() && is_blank(text[i])) ++i;
  }
  return words;
}

std::string_view without_to(std::string_view word) {
  if (word.starts_with(kTo)) word.remove_prefix(kTo.size());
  return word;
}

/// The channel's name at the front of the text after its marker.
std::string_view channel_name(std::string_view text) {
  const auto ends = [](char c) { return is_blank(c) || c == '<'; };
  return text.substr(0, static_cast<std::size_t>(std::find_if(text.begin(), text.end(), ends) - text.begin()));
}

/// Removes the first channel from `text`. false: its name is missing.
bool take_channel(std::string& text, std::string& channel) {
  const std::size_t at = text.find(kChannel);
  if (at == std::string::npos) return true;
  channel = channel_name(std::string_view(text).substr(at + kChannel.size()));
  text.erase(at, kChannel.size() + channel.size());
  return !channel.empty();
}

/// A content type may follow another word without a space.
void part_content_types(std::string& text) {
  for (std::size_t at = text.find(kConstrain); at != std::string::npos; at = text.find(kConstrain, at + kConstrain.size() + 1))
    text.insert(at, " ");
}

}  // namespace

std::optional<Header> read_header(std::string_view text, bool has_role) {
  std::string rest(text);
  Header header;
  if (!take_channel(rest, header.channel)) return std::nullopt;
  part_content_types(rest);
  std::vector<std::string_view> words = words_of(rest);
  std::string_view role = kAssistant;
  if (!has_role) {
    if (words.empty()) return std::nullopt;
    role = words.front();
    header.is_assistant = role == kAssistant;
    if (!header.is_assistant && !is_other_role(role)) {  // the name of a tool
      if (words.size() == 1 && !role.starts_with(kTo)) return std::nullopt;
      words.erase(words.begin());
    }
  }
  if (!words.empty() && words.front() == role) words.erase(words.begin());
  // Of two words the second is a content type, unless it names the recipient itself.
  if (words.size() > 2 || (words.size() == 2 && words[1].starts_with(kTo))) return std::nullopt;
  if (!words.empty()) header.recipient = without_to(words.front());
  return header;
}

Header mended_header(std::string_view text) {
  if (const std::size_t start = text.rfind(kStart); start != std::string_view::npos) text.remove_prefix(start + kStart.size());
  std::string rest(text);
  Header header;
  while (rest.find(kChannel) != std::string::npos) {
    const std::string before = std::exchange(header.channel, {});
    if (!take_channel(rest, header.channel)) header.channel = before;
  }
  part_content_types(rest);
  const std::vector<std::string_view> words = words_of(rest);
  header.is_assistant = words.empty() || !is_other_role(words.front());
  for (const std::string_view word : words)
    if (word.starts_with(kTo)) header.recipient = without_to(word);
  return header;
}

Header read_open_header(std::string_view text) {
  Header header;
  if (const std::size_t start = text.rfind(kStart); start != std::string_view::npos) {
    text.remove_prefix(start + kStart.size());
    const std::vector<std::string_view> words = words_of(text);
    header.is_assistant = words.empty() || !is_other_role(words.front());
  }
  if (const std::string_view role = text.substr(0, kAssistant.size());
      role == kAssistant && (text.size() == role.size() || is_blank(text[role.size()]) || text[role.size()] == '<')) {
    text.remove_prefix(role.size());
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  }
  header.text = text;
  if (take_channel(header.text, header.channel) && !header.channel.empty())
    header.text.erase(0, std::min(header.text.find_first_not_of(kBlanks), header.text.size()));
  return header;
}

std::optional<Header> opened_header(std::string_view prompt) {
  const std::size_t start = prompt.rfind(kStart);
  if (start == std::string_view::npos) return std::nullopt;
  const std::string_view last = prompt.substr(start + kStart.size());
  const std::size_t message = last.find(kMessage);
  if (message == std::string_view::npos || message > kMaxHeader) return std::nullopt;
  const std::string_view content = last.substr(message + kMessage.size());
  for (const std::string_view end : {kEnd, kReturn, kCall})
    if (content.find(end) != std::string_view::npos) return std::nullopt;
  const std::string_view header = last.substr(0, message);
  const auto read = read_header(header, /*has_role=*/false);
  return read ? *read : mended_header(header);
}

}  // namespace baton::parsers::harmony
