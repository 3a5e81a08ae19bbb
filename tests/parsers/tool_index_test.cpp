/// Tools by name, and the limits of reading them (parsers/tool_index.h).
#include "parsers/tool_index.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/message_format.h"
#include "support/tool_index.h"

namespace baton::parsers {
namespace {

std::vector<Tool> two_tools() {
  return {{.name = "add", .parameters = *json::parse(R"({"properties": {"a": {"type": "number"}}})", "parameters")},
          {.name = "now"}};
}

TEST(ToolIndex, finds_tools_and_the_kinds_of_their_arguments) {
  const auto index = testing::index_of(two_tools());
  ASSERT_NE(index->find("add"), nullptr);
  EXPECT_EQ(index->find("add")->of("a"), kAllowsNumber);
  EXPECT_EQ(index->find("add")->of("b"), kAllowsString);
  ASSERT_NE(index->find("now"), nullptr);
  EXPECT_EQ(index->find("now")->of("a"), kAllowsString);
  EXPECT_EQ(index->find("ad"), nullptr);
  EXPECT_EQ(index->find(""), nullptr);
}

TEST(ToolIndex, reads_schemas_only_for_formats_that_write_no_types) {
  UnlimitedWork work;
  const auto kinds_with = [&](const char* tool_parser) {
    return MessageFormat::make(tool_parser, "", "")->index(two_tools(), work.budget()).value()->find("add")->of("a");
  };
  EXPECT_EQ(kinds_with("qwen3_coder"), kAllowsNumber);
  EXPECT_EQ(kinds_with("hermes"), kAllowsString);
}

TEST(ToolIndex, is_an_error_when_its_work_is_over) {
  WorkBudget cancelled({.steps = 1'000'000, .bytes = 1'000'000}, [] { return true; });
  const auto none = ToolIndex::make(two_tools(), true, cancelled);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unavailable);
  WorkBudget small({.steps = 1'000'000, .bytes = 200});
  const auto too_large = ToolIndex::make(two_tools(), true, small);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, ErrorCode::too_large);
  EXPECT_EQ(too_large.error().message, "reading the tools needs more than 200 bytes of memory");
}

}  // namespace
}  // namespace baton::parsers
