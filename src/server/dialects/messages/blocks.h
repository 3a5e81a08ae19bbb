/// Messages of the Anthropic dialect, block by block, as messages of a chat completion.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// What is read of a request so far.
struct MessagesReading {
  MessagesRequest request;
  json::Value messages = json::Value::array();  ///< of the chat completion
};

/// The `type` of a block, an object.
Result<std::string> block_type(const json::Value& block, const std::string& key);
/// Notes the mark of a block that has one. Error (invalid_request): it is none, or one too many.
Result<void> read_mark(const json::Value& block, const std::string& key, CacheMark place, std::vector<CacheMark>& marks);

/// Reads `system`, a text or blocks of text.
Result<void> read_system(const json::Value& system, MessagesReading& reading);

/// Reads a message. Results of tools become messages of their own, in their places. What another model or a hosted server has
/// said and what says nothing to this model is left out: encrypted thinking, calls and results of server tools. `is_last`: images
/// and files are what the user asks about now, and refused by name; in front of that a text stands for them. Errors
/// (invalid_request) name the block.
Result<void> read_message_blocks(const json::Value& message, std::size_t index, bool is_last, MessagesReading& reading);

}  // namespace baton
