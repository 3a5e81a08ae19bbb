/// The items of a conversation of the Responses dialect as messages of a chat completion.
#pragma once

#include <string>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The items of `input`, a string or a list: each with a type and an id. Errors (invalid_request) name the item.
Result<json::Value> read_input_items(const json::Value& input);

/// The messages of items that read_input_items has returned or that are output of a response. Calls and reasoning become
/// part of the assistant's message to which they belong. Errors (invalid_request) name the item.
Result<json::Value> messages_of_items(const json::Value& items);

/// A new id of an item of this type: "msg_...", "fc_...", "rs_...".
std::string new_item_id(std::string_view type);

}  // namespace baton
