/// Requests of the Anthropic dialect that tests write as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/messages/dialect.h"

namespace baton::testing::messages {

inline MessagesRequest read(std::string_view text) {
  auto request = read_messages_request(parsed(text), /*needs_max_tokens=*/true);
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? std::move(*request) : MessagesRequest{};
}

/// A request with these fields beside the ones that every request needs.
inline MessagesRequest with(std::string_view fields) {
  return read(R"({"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], )" + std::string(fields) +
              "}");
}

/// A request with these messages.
inline MessagesRequest says(std::string_view messages) {
  return read(R"({"max_tokens": 5, "messages": )" + std::string(messages) + "}");
}

struct Refusal {
  std::string param;
  std::string message;
};
inline Refusal refusal(std::string_view text) {
  const auto request = read_messages_request(parsed(text), /*needs_max_tokens=*/true);
  EXPECT_FALSE(request) << text;
  if (request) return {};
  EXPECT_EQ(request.error().code, ErrorCode::invalid_request);
  return {request.error().param, request.error().message};
}
inline Refusal refusal_of_message(std::string_view message) {
  return refusal(R"({"max_tokens": 5, "messages": [)" + std::string(message) + "]}");
}

}  // namespace baton::testing::messages
