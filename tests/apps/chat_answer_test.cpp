/// What `baton chat` shows of an answer (apps/chat_answer.h).
#include "apps/chat_answer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using parsers::MessagePiece;
using Kind = MessagePiece::Kind;

struct Shown {
  std::string text;
  std::string message;
};

Shown shown(std::initializer_list<MessagePiece> pieces) {
  Shown result;
  ChatAnswer answer([&](std::string_view text) { result.text += text; });
  for (const MessagePiece& piece : pieces) answer.take({&piece, 1});
  answer.end();
  result.message = json::dump(answer.message());
  return result;
}

TEST(ChatAnswer, shows_text_as_it_is) {
  const Shown text = shown({{Kind::content, 0, "Two\n"}, {Kind::content, 0, ""}, {Kind::content, 0, "mugs."}});
  EXPECT_EQ(text.text, "Two\nmugs.\n");
  EXPECT_EQ(text.message, R"({"role":"assistant","content":"Two\nmugs."})");
  EXPECT_EQ(shown({}).text, "\n");
}

TEST(ChatAnswer, shows_calls_with_their_arguments) {
  const Shown calls = shown({{Kind::content, 0, "Let me see."},
                             {Kind::call, 0, "plan_trip", "call_1"},
                             {Kind::arguments, 0, R"({"city": "Par)"},
                             {Kind::arguments, 0, R"(is", "days": [1, 2]})"},
                             {Kind::call, 1, "now", "call_2"}});
  EXPECT_EQ(calls.text, "Let me see.\n[call] plan_trip(city=\"Paris\", days=[1,2])\n[call] now()\n");
  EXPECT_EQ(calls.message,
            R"({"role":"assistant","content":"Let me see.","tool_calls":[{"id":"call_1","type":"function","function":{"name":)"
            R"("plan_trip","arguments":"{\"city\": \"Paris\", \"days\": [1, 2]}"}},{"id":"call_2","type":"function",)"
            R"("function":{"name":"now","arguments":"{}"}}]})");
}

TEST(ChatAnswer, shows_text_after_a_call_on_a_line_of_its_own) {
  const Shown both = shown({{Kind::call, 0, "now", "c"}, {Kind::arguments, 0, "{}"}, {Kind::content, 0, "That is it."}});
  EXPECT_EQ(both.text, "[call] now()\nThat is it.\n");
}

TEST(ChatAnswer, does_not_keep_a_call_that_the_end_has_cut) {
  const Shown cut = shown({{Kind::call, 0, "plan_trip", "c"}, {Kind::arguments, 0, R"({"city": "Pa)"}});
  EXPECT_EQ(cut.text, "[call] plan_trip({\"city\": \"Pa ... (the answer ended here)\n");
  EXPECT_EQ(cut.message, R"({"role":"assistant","content":""})");
}

TEST(ChatAnswer, shows_reasoning_in_front_of_the_text) {
  const Shown thought = shown({{Kind::reasoning, 0, "Mugs"}, {Kind::reasoning, 0, " are blue."}, {Kind::content, 0, "Blue."}});
  EXPECT_EQ(thought.text, "[reasoning] Mugs are blue.\nBlue.\n");
  EXPECT_EQ(thought.message, R"({"role":"assistant","content":"Blue.","reasoning_content":"Mugs are blue."})");
}

}  // namespace
}  // namespace baton
