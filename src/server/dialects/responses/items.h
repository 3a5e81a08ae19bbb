/// The items of a conversation of the Responses dialect as messages of a chat completion.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The items of `input`, a string or a list: each with a type and an id. Errors (invalid_request) name the item.
Result<json::Value> read_input_items(const json::Value& input);

/// Finds an item of a stored response by its id; null: there is none.
using FindItem = std::function<json::Value(std::string_view id)>;
/// The items, with what an `item_reference` names in its place. References to items that are here already, or
/// that are not found, stay.
json::Value with_referred_items(json::Value items, const FindItem& find);

/// What items say.
struct ItemMessages {
  json::Value messages = json::Value::array();  ///< of a chat completion
  /// Lists of tools that the conversation has brought (`tool_search_output`, `additional_tools`).
  std::vector<json::Value> tools = {};
  std::vector<std::string> left_out = {};  ///< types of items that say nothing to this model
};

/// The messages of items that read_input_items has returned or that are output of a response. Calls and reasoning become
/// part of the assistant's message to which they belong. Items of tools that a hosted server has run say what their texts do.
/// Errors (invalid_request) name the item: a wrong type, or an image or a file in a last message of the user. `n_earlier`: items
/// in front that are not of this request's input.
Result<ItemMessages> messages_of_items(const json::Value& items, std::size_t n_earlier = 0);

/// A new id of an item of this type: "msg_...", "fc_...", "rs_...".
std::string new_item_id(std::string_view type);

}  // namespace baton
