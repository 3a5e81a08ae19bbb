/// Structured output over HTTP: errors, and compilation as short and as long work (server/routes_grammars.cpp).
#include <chrono>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace baton {
namespace {

constexpr std::string_view kRefusedByWork = "((a{1,300}){1,300}){1,300}";  // only after half a second

std::string completion(std::string_view fields) { return fmt::format(R"({{"prompt": "ab", {}}})", fields); }

/// The value of a metric of the grammars, or -1.
double metric(const ServerFixture& fixture, std::string_view name) {
  const std::string page = fixture.get("/metrics").body;
  const std::string line = fmt::format("\nbaton:grammar_{}", name);
  const auto at = page.find(line);
  if (at == std::string::npos) return -1;
  const auto value = page.find("} ", at);
  return std::stod(page.substr(value + 2));
}

TEST(RoutesGrammars, name_the_field_and_the_place_of_a_mistake) {
  const ServerFixture fixture;
  struct Case {
    std::string_view fields;
    std::string_view param;
    std::string_view place;
  };
  const Case cases[] = {
      {R"("response_format": {"type": "xml"})", "response_format.type", "xml"},
      {R"("guided_json": {"properties": {"a": {"if": {}}}})", "guided_json", "#/properties/a"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "sting"}}})",
       "response_format.json_schema.schema", "sting"},
      {R"("structured_outputs": {"regex": "(a"})", "structured_outputs.regex", "byte 2"},
      {R"("grammar": "root ::= other")", "grammar", "other"},
      {R"("guided_regex": "a", "grammar": "root ::= \"a\"")", "grammar", "only one"},
  };
  for (const Case& one : cases) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      const std::string body =
          fmt::format(R"({{"prompt": "ab", "messages": [{{"role": "user", "content": "a"}}], {}}})", one.fields);
      const RawResponse response = fixture.post(path, body);
      EXPECT_EQ(response.status, 400) << body << response.body;
      const json::Value error = parsed(response.body)["error"];
      EXPECT_EQ(error["param"], one.param) << response.body;
      EXPECT_NE(error["message"].get<std::string>().find(one.place), std::string::npos) << response.body;
    }
  }
  EXPECT_EQ(metric(fixture, "refusals_total"), 8) << "those of a compiler";
  EXPECT_EQ(metric(fixture, "cache_entries"), 0);
}

TEST(RoutesGrammars, a_grammar_that_takes_long_does_not_keep_short_requests_waiting) {
  const ServerFixture fixture;
  ASSERT_EQ(fixture.post("/v1/completions", completion(R"("guided_regex": "(")")).status, 400) << "the vocabulary is built";
  std::thread slow([&] {
    const RawResponse response =
        fixture.post("/v1/completions", completion(fmt::format(R"("guided_regex": "{}")", kRefusedByWork)));
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_NE(response.body.find("more than"), std::string::npos) << response.body;
  });
  int n_short = 0;
  while (metric(fixture, "refusals_total") < 2 && n_short < 1000) {
    EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "ab"})").status, 200);
    ++n_short;
  }
  slow.join();
  EXPECT_GT(n_short, 3);
}

TEST(RoutesGrammars, a_compilation_ends_when_its_client_leaves) {
  const ServerFixture fixture;
  const std::string body = completion(fmt::format(R"("guided_regex": "{}")", kRefusedByWork));
  {
    RawClient client = fixture.client();
    client.send(fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body));
    ServerFixture::wait_until([&] { return metric(fixture, "cache_misses_total") >= 1; });
  }
  ServerFixture::wait_until([&] { return fixture.server->budgets().text_work.used() == 0; });
  EXPECT_EQ(metric(fixture, "refusals_total"), 0) << "it was cancelled, not refused";
  EXPECT_EQ(fixture.post("/v1/completions", completion(R"("guided_regex": "(")")).status, 400) << "the threads are free again";
}

}  // namespace
}  // namespace baton
