/// One conversation over one engine, for `baton chat`.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"
#include "server/prefixes/prefixes.h"
#include "server/served/served_model.h"

namespace baton {

/// The messages so far, and what every answer is asked with. The engine must have no other requests: it is stepped
/// here. Thread: one.
class Conversation {
 public:
  struct Options {
    std::string system = {};       ///< text of a system message; empty: none
    std::string prefix = {};       ///< name of a registered prompt; empty: none
    json::Value tools = {};        ///< a list as in the API; null: none
    std::string tool_choice = {};  ///< "auto", "none", "required" or a tool's name, for answers to texts; empty: "auto"
    double temperature = -1;       ///< -1: the model's default
    std::int32_t max_tokens = 0;   ///< of an answer; 0: the rest of the context
  };

  /// All must outlive it.
  Conversation(Engine& engine, const ServedModel& model, const Prefixes& prefixes, Options options)
      : engine_(engine), model_(model), prefixes_(prefixes), options_(std::move(options)) {
    reset();
  }

  /// Forgets the messages.
  void reset();
  /// Changes what is asked with, and forgets the messages.
  void use_system(std::string text);
  void use_prefix(std::string name);
  void use_tools(json::Value tools);

  /// Writes the answer to `text` on standard output while it is generated. Ctrl-C (cli/interrupt.h) ends it. If that
  /// fails, `text` is taken back from the conversation.
  Result<void> answer(const std::string& text);

  /// A call of a tool in the last answer, whose result the model has not been told.
  struct OpenCall {
    std::string id;
    std::string name;
  };
  const std::deque<OpenCall>& open_calls() const { return open_calls_; }
  /// Tells the result of the first open call. After the last one the model continues, as in `answer`. There is an open
  /// call.
  Result<void> give_result(const std::string& text);

  const Options& options() const { return options_; }
  const SequenceStats& stats() const { return stats_; }  ///< of the last answer

 private:
  Result<void> go_on(const std::string& tool_choice);
  json::Value request_body(const std::string& tool_choice) const;
  Result<json::Value> generate(const std::string& tool_choice);

  Engine& engine_;
  const ServedModel& model_;
  const Prefixes& prefixes_;
  Options options_;
  json::Value messages_;
  std::deque<OpenCall> open_calls_;
  SequenceStats stats_;
};

}  // namespace baton
