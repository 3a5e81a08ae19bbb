/// Harmony, the format of gpt-oss: its special tokens, and the headers of its messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace baton::parsers::harmony {

// <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL <|constrain|>TYPE<|message|>CONTENT, and one of the ends after it. The recipient may also
// follow the channel. The prompt ends with `<|start|>assistant`, where the answer begins.
inline constexpr std::string_view kStart = "<|start|>";
inline constexpr std::string_view kChannel = "<|channel|>";
inline constexpr std::string_view kConstrain = "<|constrain|>";
inline constexpr std::string_view kMessage = "<|message|>";
inline constexpr std::string_view kEnd = "<|end|>";        ///< of a message that others follow
inline constexpr std::string_view kReturn = "<|return|>";  ///< of the answer
inline constexpr std::string_view kCall = "<|call|>";      ///< of a call, and of the answer

inline constexpr std::string_view kAnalysis = "analysis";
inline constexpr std::string_view kCommentary = "commentary";
inline constexpr std::string_view kFinal = "final";
/// In front of the name of a function that is a recipient.
inline constexpr std::string_view kFunctions = "functions.";

/// No header is longer, in bytes: a longer one is text.
inline constexpr std::size_t kMaxHeader = 1024;

struct Header {
  bool is_assistant = true;  ///< otherwise a model has written what others say: a result, a question
  std::string channel = {};
  std::string recipient = {};
  std::string text = {};  ///< of a header that nothing has closed: what is no part of a header
};

/// The header of a message from the text in front of its `<|message|>`. `has_role`: the prompt has written the role `assistant`.
/// What openai-harmony accepts is read as it reads it; nullopt for other texts.
std::optional<Header> read_header(std::string_view text, bool has_role);

/// The same for any text: the last role, channel and recipient in it.
Header mended_header(std::string_view text);

/// A header that ends without `<|message|>`: its channel, and the text around it. Without a channel all of it is text.
Header read_open_header(std::string_view text);

/// Of a rendered prompt: the header of the message that it leaves open; nullopt: it ends in a header, or with a message.
std::optional<Header> opened_header(std::string_view prompt);

}  // namespace baton::parsers::harmony
