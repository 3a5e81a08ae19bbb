/// What requests of the other dialects have in common: they are read as the body of an equal chat completion.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// A field that would change the answer and that this server does not support.
struct RefusedField {
  std::string_view name;
  std::string_view neutral;  ///< JSON text of the value accepted besides null, or empty
};

/// A field of a dialect, and that of a chat completion with the same values.
struct SameField {
  std::string_view name;
  std::string_view chat_name;
};

/// Errors (invalid_request): too many fields, or a refused one that has not its neutral value.
Result<void> check_dialect_fields(const json::Value& body, std::span<const RefusedField> refused);

/// Copies fields that are given from `body` to the body of a chat completion: these, and Baton's own (cache_salt, prefix,
/// seed, chat_template_kwargs, ...), which all dialects take.
void copy_same_fields(const json::Value& body, std::span<const SameField> same, json::Value& chat);

/// The names of fields that are neither in `known` nor copied nor refused, shortened for printing.
std::vector<std::string> unknown_dialect_fields(const json::Value& body, std::span<const std::string_view> known,
                                                std::span<const SameField> same, std::span<const RefusedField> refused);

/// How a dialect calls the fields of a chat completion.
struct FieldNames {
  std::span<const SameField> same;
  std::string_view messages = "messages";
  std::string_view parameters = "parameters";   ///< of a tool
  std::string_view format = "response_format";  ///< holds the schema itself
  std::span<const std::string> tools = {};      ///< what the client calls each of the tools: "tools[2]"
};

/// An error of a chat completion's field in the words of the dialect.
Error in_words_of(const FieldNames& names, Error error);

/// A message of a conversation: {role, content}.
json::Value chat_message(std::string_view role, json::Value content);

/// One content of the texts of several parts: the text itself if there is one.
json::Value chat_content(std::vector<std::string> texts);

}  // namespace baton
