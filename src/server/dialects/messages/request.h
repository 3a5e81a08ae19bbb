/// Requests of the Anthropic dialect (POST /v1/messages), read as chat completions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// A `cache_control`: the request's prompt up to this place is to be kept in the cache.
struct CacheMark {
  enum class Part : std::uint8_t { tools, system, messages };
  Part part = Part::tools;
  std::size_t index = 0;          ///< of the tool, of the system's block, or of the message
  std::size_t block = 0;          ///< of the message's content
  std::chrono::seconds ttl{300};  ///< after its last use
};

inline constexpr std::size_t kMaxCacheMarks = 4;

struct MessagesRequest {
  json::Value chat;                         ///< the body of a chat completion that asks for the same
  std::vector<CacheMark> marks;             ///< in the order of the prompt, at most kMaxCacheMarks
  std::vector<std::string> tool_keys;       ///< what the client calls each of the chat completion's tools: "tools[2]"
  std::vector<std::string> unknown_fields;  ///< ignored
};

/// Reads a request's body, an object. `needs_max_tokens`: the request is for an answer, not for a count. Errors
/// (invalid_request) name the field: a wrong type, a kind of block, tool or field that is not supported.
Result<MessagesRequest> read_messages_request(const json::Value& body, bool needs_max_tokens);

/// An error of the chat completion in the words of this dialect. `tool_keys`: those of the request.
Error messages_error(Error error, std::span<const std::string> tool_keys = {});

/// Whether a request asks for edits of its conversation.
bool has_context_management(const json::Value& body);

/// The body of a request that ends at a mark of it: what comes after is left out, except that a conversation without a
/// message has an empty one of the user.
json::Value cut_at_mark(const json::Value& body, const CacheMark& mark);

}  // namespace baton
