/// The JSON of answers of the Responses dialect: the events of a stream, and a response in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "parsers/message_parser.h"
#include "server/answer/writer.h"
#include "server/dialects/responses/tools.h"
#include "server/limits/budget.h"
#include "server/request/tool_fields.h"

namespace baton {

/// What the writer of a response needs beside the answer.
struct ResponsePlan {
  json::Value repeated;  ///< members of the response that repeat the request
  /// Takes the text of the complete response if it is to be stored; may be empty.
  std::function<void(std::string response)> keep = {};
  BudgetShare bytes = {};                                       ///< what the plan takes of the budget of requests
  std::map<std::string, ResponseTool, std::less<>> tools = {};  ///< by the names that the model uses
};

/// Larger responses are not stored.
inline constexpr std::size_t kMaxStoredBytes = std::size_t{1} << 20;

/// Writes the answer to one request of /v1/responses, which has one choice. Its output has an item for each run of reasoning
/// and of text, and for each call. A stream numbers its events; the log-probabilities of a stream are in the deltas alone.
/// Thread: one at a time.
class ResponsesWriter final : public AnswerWriter {
 public:
  /// The content and the tokenizer must outlive it.
  ResponsesWriter(const AnswerContent& content, const Tokenizer& tokenizer, ResponsePlan plan)
      : content_(content), tokenizer_(tokenizer), plan_(std::move(plan)) {}

  std::string choice_frames(std::size_t index, bool is_last) override;
  std::string last_frames() override { return {}; }
  std::string error_frames(int status, std::string_view message, std::string_view param) override;
  Resumable write_response(std::string& out) override;
  std::size_t response_bytes() const override;
  HttpResponse error(int status, std::string_view message, std::string_view param) override;

 private:
  std::string event(std::string_view type, json::Value members);
  json::Value at_item() const;
  json::Value usage() const;
  json::Value response(std::string_view status) const;
  json::Value complete_response() const;
  std::string begin_frames();
  const ResponseTool* tool_of(const parsers::MessagePiece& piece) const;
  json::Value new_item(const parsers::MessagePiece& piece) const;
  std::string begin_item(const parsers::MessagePiece& piece);
  std::string input_frames(const std::string& piece);
  std::string call_frames(std::string_view piece);
  std::string end_call();
  std::string end_item(std::string_view status);
  std::string piece_frames(const parsers::MessagePiece& piece);
  json::Value take_logprobs();
  void set_output_of_pieces();
  Resumable write_output_with_logprobs(std::string& out);

  const AnswerContent& content_;
  const Tokenizer& tokenizer_;
  ResponsePlan plan_;
  bool has_begun_ = false;
  std::int64_t n_events_ = 0;
  json::Value output_ = json::Value::array();  // items; the last one is open if is_open_
  bool is_open_ = false;
  parsers::MessagePiece::Kind kind_ = parsers::MessagePiece::Kind::content;  // of the open item
  std::string text_;                                                         // of the open item
  bool has_whole_arguments_ = false;                                         // the open item, a call
  const ResponseTool* tool_ = nullptr;                                       // of the open item's call; null: a function
  CustomInput input_;                                                        // of the open item's call
  std::vector<TokenOutput> unsent_;  // tokens whose log-probabilities no delta has shown
};

}  // namespace baton
