/// Replies of a Hugging Face endpoint: what is read from them, and the error for each that is damaged.
#include "io/hub_download.h"

#include <string>

#include <gtest/gtest.h>

namespace baton::hub {
namespace {

const std::string kSha(40, 'a');

Result<RemoteModel> model_of(std::string body) {
  return remote_model_of("http://hub/api", {.status = 200, .headers = {}, .body = std::move(body)});
}

TEST(HubReplies, a_revision_is_a_commit_and_its_files) {
  const auto model = model_of(R"({"sha":")" + kSha + R"(","siblings":[{"rfilename":"b"},{"rfilename":"a","size":3}]})");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->commit, kSha);
  EXPECT_EQ(model->files, (std::set<std::string>{"a", "b"}));
}

TEST(HubReplies, a_damaged_reply_is_named_with_its_source) {
  const auto error = [](std::string body) {
    const auto model = model_of(std::move(body));
    EXPECT_FALSE(model);
    if (model) return std::string();
    EXPECT_EQ(model.error().code, ErrorCode::invalid_data);
    return model.error().message;
  };
  EXPECT_EQ(error("{}"), "http://hub/api: 'sha' is missing");
  EXPECT_EQ(error(R"({"sha":"../../x","siblings":[]})"), "http://hub/api: 'sha' is not a commit");
  EXPECT_EQ(error(R"({"sha":")" + kSha + R"(","siblings":{}})"), "http://hub/api: 'siblings' must be a list, not an object");
  EXPECT_EQ(error(R"({"sha":")" + kSha + R"(","siblings":[{"rfilename":1}]})"),
            "http://hub/api: 'rfilename' must be a string, not an integer");
  EXPECT_TRUE(error("<html>").starts_with("http://hub/api")) << error("<html>");
  EXPECT_TRUE(error(std::string(100'000, '[')).starts_with("http://hub/api"));
}

TEST(HubReplies, a_status_that_is_no_success_is_an_error) {
  EXPECT_EQ(remote_model_of("u", {.status = 404, .headers = {}, .body = ""}).error().code, ErrorCode::not_found);
  EXPECT_EQ(
      remote_model_of("u", {.status = 403, .headers = {}, .body = ""}).error().message,
      "u: HTTP status 403 (private or gated: set HF_TOKEN or log in with `hf auth login`, and accept the model's conditions)");
  EXPECT_EQ(remote_file_of("u", {.status = 500, .headers = {}, .body = ""}).error().code, ErrorCode::unavailable);
}

TEST(HubReplies, the_etag_of_a_file_is_fit_for_a_path) {
  const auto file = [](std::map<std::string, std::string> headers) {
    return remote_file_of("u", {.status = 302, .headers = std::move(headers), .body = ""});
  };
  const auto large = file({{"etag", "x"}, {"x-linked-etag", "\"beef\""}, {"x-linked-size", "12"}, {"content-length", "0"}});
  ASSERT_TRUE(large);
  EXPECT_EQ(large->etag, "beef");
  EXPECT_EQ(large->size_bytes, 12u);
  EXPECT_EQ(file({{"etag", "W/\"ab\""}, {"content-length", "3"}})->etag, "ab");
  EXPECT_FALSE(file({{"etag", "../up"}, {"content-length", "3"}}));
  EXPECT_FALSE(file({{"etag", "ab"}, {"content-length", "-3"}}));
  EXPECT_FALSE(file({{"etag", "ab"}, {"content-length", "99999999999999999999"}}));
  EXPECT_FALSE(file({{"etag", "ab"}}));
}

}  // namespace
}  // namespace baton::hub
