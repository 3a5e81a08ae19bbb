/// Requests of the Responses dialect that tests write as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/responses/dialect.h"

namespace baton::testing::responses {

/// A request with these fields beside its input.
inline ResponsesRequest with(std::string_view fields) {
  auto request = read_responses_request(parsed(R"({"input": "hi", )" + std::string(fields) + "}"), json::Value::array());
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? std::move(*request) : ResponsesRequest{};
}

/// What the error of such a request names.
inline std::string refused(std::string_view fields) {
  const auto request = read_responses_request(parsed(R"({"input": "hi", )" + std::string(fields) + "}"), json::Value::array());
  EXPECT_FALSE(request) << fields;
  return request ? std::string() : request.error().param;
}

}  // namespace baton::testing::responses
