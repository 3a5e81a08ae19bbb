/// `baton chat`: talk to a model on the terminal.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"

namespace baton {

struct ChatOptions {
  ModelFlags model;
  std::string system;  ///< text of a system message
  /// Name of a registered prompt to begin with; empty: the only --prefix, or the demo model's shop if there is no
  /// model.
  std::string prefix;
  std::string tools;              ///< file with a list of tools as in the API; empty: none
  std::string tool_choice;        ///< see Conversation::Options
  bool keeps_no_history = false;  ///< lines that are typed are not kept for later runs
  double temperature = -1;        ///< -1: the model's default
  std::int32_t max_tokens = 0;    ///< of an answer; 0: the rest of the context
};

void add_chat_options(CLI::App& app, ChatOptions& options);

/// Reads lines until the end of the input and prints each answer while it is generated. Exit code: 0, 1 (failed) or 2
/// (flags that contradict each other).
int chat_main(ChatOptions options);

}  // namespace baton
