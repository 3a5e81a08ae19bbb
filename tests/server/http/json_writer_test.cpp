/// JSON that is appended to a text (server/http/json_body.h).
#include "server/http/json_body.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(JsonWriter, separates_members_by_commas) {
  std::string text;
  JsonObjectWriter object(text);
  object.add("a", 1);
  object.key("b");
  text += "[]";
  object.add("c", nullptr);
  object.end();
  EXPECT_EQ(text, R"({"a":1,"b":[],"c":null})");
  std::string empty;
  JsonObjectWriter(empty).end();
  EXPECT_EQ(empty, "{}");
}

TEST(JsonWriter, writes_strings_in_steps_that_end_after_whole_characters) {
  std::string given;
  while (given.size() < (40 << 10)) given += "a\"\n\u00fc\u20ac";
  for (const std::string& text : {std::string(), std::string("x"), given}) {
    std::string written;
    Resumable string = write_json_string(text, written);
    int n_steps = 1;
    while (string.resume()) ++n_steps;
    EXPECT_EQ(written, json::dump(json::Value(text)));
    EXPECT_EQ(n_steps, text.size() > 100 ? 3 : 1);
  }
}

}  // namespace
}  // namespace baton
