/// Responses and streams of the Responses dialect (server/dialects/responses/answer.h).
#include "server/dialects/responses/answer.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/dialect_content.h"

namespace baton {
namespace {

class ResponsesAnswer : public ::testing::Test {
 protected:
  ResponsesWriter& writer() {
    if (!writer_) {
      ResponsePlan plan{parsed(R"({"instructions": "i", "tools": []})")};
      plan.keep = [this](std::string text) { kept_ = std::move(text); };
      plan.tools = tools_;
      writer_ = std::make_unique<ResponsesWriter>(written_.content, written_.tokenizer, std::move(plan));
    }
    return *writer_;
  }
  std::string take() {
    std::string frames = writer().choice_frames(0, written_.choice().has_ended());
    written_.choice().clear();
    if (written_.choice().has_ended()) frames += writer().last_frames();
    return frames;
  }
  /// The stream of a text that comes byte by byte.
  std::vector<NamedFrame> stream_of(std::string_view text, FinishReason reason) {
    std::string frames;
    for (const char byte : text) {
      written_.says(std::string_view(&byte, 1));
      frames += take();
    }
    written_.ends("", reason);
    return named_frames(frames + take());
  }

  DialectContent written_;
  std::string kept_;
  std::map<std::string, ResponseTool, std::less<>> tools_;
  std::unique_ptr<ResponsesWriter> writer_;
};

const std::string kThoughtTextAndCall = "<think>\nhm\n</think>\n\nLet me look." + std::string(kLookCall);

/// Without ids and times, which differ.
json::Value without_ids(json::Value value) {
  if (value.is_object()) {
    for (const char* const name : {"id", "item_id", "call_id", "created_at", "completed_at"}) value.erase(name);
    for (auto& [name, member] : value.get_ref<json::Value::object_t&>()) member = without_ids(member);
  } else if (value.is_array()) {
    for (json::Value& element : value) element = without_ids(element);
  }
  return value;
}

TEST_F(ResponsesAnswer, is_one_response_with_the_request_s_members) {
  written_.ends("Hi", FinishReason::stop);
  const std::string body = body_of(writer());
  EXPECT_EQ(json::dump(without_ids(parsed(body))),
            R"({"object":"response","status":"completed","error":null,"incomplete_details":null,"model":"demo","output":[)"
            R"({"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],)"
            R"("logprobs":[],"text":"Hi"}]}],"instructions":"i","tools":[],"usage":{"input_tokens":40,"input_tokens_details":{)"
            R"("cached_tokens":16,"cache_write_tokens":24},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},)"
            R"("total_tokens":42}})");
  EXPECT_EQ(parsed(body)["id"], "id-1");
  EXPECT_EQ(kept_, body);
}

TEST_F(ResponsesAnswer, streams_its_events_in_their_order) {
  const auto frames = stream_of("Hi", FinishReason::length);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    names.push_back(frames[i].event);
    EXPECT_EQ(frames[i].data["sequence_number"], i);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                       "response.output_text.delta", "response.output_text.delta", "response.output_text.done",
                       "response.content_part.done", "response.output_item.done", "response.incomplete"}));
  EXPECT_EQ(frames[0].data["response"]["status"], "in_progress");
  EXPECT_EQ(frames[4].data["delta"], "H");
  EXPECT_EQ(frames[4].data["item_id"], frames[2].data["item"]["id"]);
  EXPECT_EQ(frames[6].data["text"], "Hi");
  EXPECT_EQ(frames[8].data["item"]["status"], "incomplete");
  EXPECT_EQ(frames[9].data["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(parsed(kept_), frames[9].data["response"]);
}

TEST_F(ResponsesAnswer, has_the_same_output_streamed_and_in_one_piece) {
  const auto frames = stream_of(kThoughtTextAndCall, FinishReason::stop);
  const json::Value streamed = frames.back().data["response"];
  DialectContent whole;
  whole.ends(kThoughtTextAndCall, FinishReason::stop);
  ResponsesWriter writer(whole.content, whole.tokenizer, {parsed(R"({"instructions": "i", "tools": []})")});
  const json::Value response = parsed(body_of(writer));
  EXPECT_EQ(without_ids(streamed), without_ids(response));
  const json::Value& output = response["output"];
  ASSERT_EQ(output.size(), 3u) << json::dump(response);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0]["type"], "reasoning_text");
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me look.");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "look");
  EXPECT_EQ(json::dump(parsed(output[2]["arguments"].get<std::string>())), R"({"at":[1,2]})");
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(ResponsesAnswer, is_completed_only_if_every_call_is_complete) {
  const std::string cut = std::string(kLookCall) + R"(<tool_call>{"name": "look", "arguments": {"at": [1)";
  struct Case {
    FinishReason end;
    bool is_stream;
    std::string_view status;
    std::string_view reason;
  };
  for (const Case& one :
       {Case{FinishReason::length, false, "incomplete", "max_output_tokens"},
        Case{FinishReason::length, true, "incomplete", "max_output_tokens"},
        Case{FinishReason::deadline, false, "incomplete", "deadline"},
        Case{FinishReason::deadline, true, "incomplete", "deadline"}, Case{FinishReason::stop, true, "incomplete", "stop"},
        Case{FinishReason::stop, false, "completed", ""}}) {
    DialectContent written;
    written.content.request.is_stream = one.is_stream;
    written.begin_again();
    ResponsesWriter writer(written.content, written.tokenizer, {json::Value::object()});
    written.ends(cut, one.end);
    const json::Value response = one.is_stream ? named_frames(writer.choice_frames(0, /*is_last=*/true)).back().data["response"]
                                               : parsed(body_of(writer));
    EXPECT_EQ(response["status"], one.status);
    ASSERT_EQ(response["output"].size(), 2u);
    EXPECT_EQ(response["output"][0]["status"], "completed");
    EXPECT_EQ(json::dump(parsed(response["output"][0]["arguments"].get<std::string>())), R"({"at":[1,2]})");
    if (one.reason.empty()) {
      EXPECT_EQ(response["output"][1]["type"], "message") << "a call that is none is content";
      continue;
    }
    EXPECT_EQ(response["incomplete_details"]["reason"], one.reason);
    EXPECT_EQ(response["output"][1]["status"], "incomplete");
    EXPECT_EQ(response["output"][1]["arguments"], R"({"at": [1)");
  }
}

TEST_F(ResponsesAnswer, joins_deltas_to_what_is_done) {
  std::string delta, done;
  std::vector<std::string> items;
  for (const NamedFrame& frame : stream_of(kThoughtTextAndCall, FinishReason::stop)) {
    if (frame.event == "response.output_item.added") {
      EXPECT_EQ(frame.data["output_index"], items.size());
      items.push_back(frame.data["item"]["type"]);
      delta.clear();
    } else if (frame.event.ends_with(".delta")) {
      EXPECT_EQ(frame.data["output_index"], items.size() - 1);
      delta += frame.data["delta"].get<std::string>();
    } else if (frame.event == "response.output_text.done" || frame.event == "response.reasoning_text.done") {
      EXPECT_EQ(frame.data["text"], delta);
    } else if (frame.event == "response.function_call_arguments.done") {
      EXPECT_EQ(frame.data["arguments"], delta);
      EXPECT_EQ(frame.data["name"], "look");
    }
  }
  EXPECT_EQ(items, (std::vector<std::string>{"reasoning", "message", "function_call"}));
}

TEST_F(ResponsesAnswer, shows_log_probabilities_of_its_text) {
  written_.content.request.sampling.n_top_logprobs = 0;
  written_.ends("Hi", FinishReason::stop);
  const json::Value part = parsed(body_of(writer()))["output"][0]["content"][0];
  ASSERT_EQ(part["logprobs"].size(), 2u);
  EXPECT_EQ(part["logprobs"][1]["token"], "i");
  EXPECT_EQ(part["text"], "Hi");
}

TEST_F(ResponsesAnswer, shows_log_probabilities_of_a_stream_in_its_deltas) {
  written_.content.request.sampling.n_top_logprobs = 0;
  int n_deltas = 0;
  for (const NamedFrame& frame : stream_of("Hi", FinishReason::stop)) {
    if (frame.event != "response.output_text.delta") continue;
    EXPECT_EQ(frame.data["logprobs"].size(), 1u);
    ++n_deltas;
  }
  EXPECT_EQ(n_deltas, 2);
}

TEST_F(ResponsesAnswer, fails_in_a_stream_and_before_it) {
  written_.says("a");
  take();
  const auto frames = named_frames(writer().error_frames(500, "no", {}));
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].event, "response.failed");
  EXPECT_EQ(frames[0].data["response"]["error"]["message"], "no");
  EXPECT_EQ(frames[0].data["response"]["error"]["code"], "server_error");
  EXPECT_EQ(frames[0].data["response"]["status"], "failed");
  const auto of_request = named_frames(writer().error_frames(400, "no", {}));
  EXPECT_EQ(of_request.back().data["response"]["error"]["code"], "invalid_prompt");
  EXPECT_EQ(writer().error(503, "no", {}).status, 503);
  EXPECT_EQ(kept_, "") << "it is not stored";
}

TEST_F(ResponsesAnswer, without_output_is_complete) {
  written_.ends("", FinishReason::stop);
  EXPECT_EQ(json::dump(parsed(body_of(writer()))["output"]), "[]");
}

/// What a call says that the model has written with these arguments.
std::string call_with(std::string_view arguments) {
  return "<tool_call>\n{\"name\": \"look\", \"arguments\": " + std::string(arguments) + "}\n</tool_call>";
}

struct ToolCase {
  ResponseTool tool;
  std::string_view arguments;
  std::string_view item;  ///< without ids
};

TEST_F(ResponsesAnswer, gives_calls_of_every_tool_their_own_items) {
  using Kind = ResponseTool::Kind;
  const ToolCase cases[] = {
      {{Kind::function, "find", "crm"},
       R"({"a": 1})",
       R"({"type":"function_call","status":"completed","name":"find","namespace":"crm","arguments":"{\"a\": 1}"})"},
      {{Kind::custom, "patch", ""},
       R"({"input": "a \"b\"\n\u00e9"})",
       R"({"type":"custom_tool_call","status":"completed","name":"patch","input":"a \"b\"\né"})"},
      {{Kind::custom, "patch", ""},
       R"({"text": "a"})",
       R"({"type":"custom_tool_call","status":"completed","name":"patch","input":"{\"text\": \"a\"}"})"},
      {{Kind::local_shell, "local_shell", ""},
       R"({"command": ["ls"], "timeout_ms": 5})",
       R"({"type":"local_shell_call","status":"completed","action":{"type":"exec","command":["ls"],"env":{},"timeout_ms":5,"working_directory":null,"user":null}})"},
      {{Kind::shell, "shell", ""},
       R"({"commands": ["ls"]})",
       R"({"type":"shell_call","status":"completed","action":{"commands":["ls"],"timeout_ms":null,"max_output_length":null}})"},
      {{Kind::apply_patch, "apply_patch", ""},
       R"({"type": "delete_file", "path": "a"})",
       R"({"type":"apply_patch_call","status":"completed","operation":{"type":"delete_file","path":"a"}})"},
      {{Kind::tool_search, "tool_search", ""},
       R"({"query": "q"})",
       R"({"type":"tool_search_call","status":"completed","execution":"client","arguments":{"query":"q"}})"},
  };
  for (const ToolCase& one : cases) {
    DialectContent whole;
    whole.ends(call_with(one.arguments), FinishReason::stop);
    ResponsePlan plan{parsed("{}")};
    plan.tools = {{"look", one.tool}};
    ResponsesWriter writer(whole.content, whole.tokenizer, std::move(plan));
    EXPECT_EQ(json::dump(without_ids(parsed(body_of(writer))["output"][0])), one.item);
  }
}

TEST_F(ResponsesAnswer, streams_the_text_of_a_custom_tool) {
  tools_ = {{"look", {ResponseTool::Kind::custom, "patch", ""}}};
  const auto frames = stream_of(call_with(R"({"input": "a \"b\"\n\u00e9\ud83d\ude00"})"), FinishReason::stop);
  std::string text;
  for (const NamedFrame& frame : frames) {
    EXPECT_NE(frame.event, "response.function_call_arguments.delta");
    if (frame.event == "response.custom_tool_call_input.delta") text += frame.data["delta"].get<std::string>();
    if (frame.event == "response.custom_tool_call_input.done") {
      EXPECT_EQ(frame.data["input"], text);
    }
  }
  EXPECT_EQ(text, "a \"b\"\né😀");
  EXPECT_EQ(frames.back().data["response"]["output"][0]["input"], text);
  EXPECT_EQ(frames.back().data["response"]["output"][0]["name"], "patch");
}

TEST_F(ResponsesAnswer, shows_a_streamed_command_when_it_is_complete) {
  tools_ = {{"look", {ResponseTool::Kind::local_shell, "local_shell", ""}}};
  const auto frames = stream_of(call_with(R"({"command": ["ls"]})"), FinishReason::stop);
  std::vector<std::string> events;
  for (const NamedFrame& frame : frames) events.push_back(frame.event);
  EXPECT_EQ(events, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                              "response.output_item.done", "response.completed"}));
  EXPECT_EQ(frames[3].data["item"]["action"]["command"][0], "ls");
}

TEST_F(ResponsesAnswer, gives_a_call_of_a_namespace_back_with_it) {
  tools_ = {{"look", {ResponseTool::Kind::function, "find", "crm"}}};
  const auto frames = stream_of(call_with("{}"), FinishReason::stop);
  EXPECT_EQ(frames[2].data["item"]["name"], "find");
  EXPECT_EQ(frames[2].data["item"]["namespace"], "crm");
  EXPECT_EQ(frames.back().data["response"]["output"][0]["namespace"], "crm");
}

}  // namespace
}  // namespace baton
