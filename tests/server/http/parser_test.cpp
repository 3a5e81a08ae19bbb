/// Requests parsed from bytes, whole and in pieces, valid and invalid (server/http/parser.h).
#include "server/http/parser.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Feeds `bytes` to a parser in pieces of `piece` bytes, as a session does.
std::unique_ptr<HttpParser> parsed(std::string_view bytes, std::size_t piece, const HttpLimits& limits = {}) {
  auto parser = std::make_unique<HttpParser>(limits);
  std::string input;
  while (!bytes.empty() && !parser->is_done() && !parser->refusal()) {
    input += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    input.erase(0, parser->put(input));
  }
  return parser;
}

int refused_status(std::string_view bytes, const HttpLimits& limits = {}) {
  const auto by_byte = parsed(bytes, 1, limits)->refusal();
  const auto at_once = parsed(bytes, bytes.size(), limits)->refusal();
  EXPECT_TRUE(by_byte && at_once && by_byte->status == at_once->status) << bytes;
  return by_byte ? by_byte->status : 0;
}

TEST(HttpParser, reads_a_request_however_it_is_cut) {
  const std::string bytes = "POST /v1/x?a=1 HTTP/1.1\r\nHost: h\r\nX-A:  b \r\nContent-Length: 5\r\n\r\nhello";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const auto parser = parsed(bytes, piece);
    ASSERT_TRUE(parser->is_done()) << piece;
    const HttpRequest request = parser->take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/x");
    EXPECT_EQ(request.query, "a=1");
    EXPECT_EQ(request.header("x-a"), "b");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keep_alive);
  }
}

TEST(HttpParser, joins_the_chunks_of_a_body_however_they_are_cut) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: "
      "t\r\n\r\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const auto parser = parsed(bytes, piece);
    ASSERT_TRUE(parser->is_done()) << piece << (parser->refusal() ? parser->refusal()->message : "");
    EXPECT_EQ(parser->take().body, "abc0123456789");
  }
}

TEST(HttpParser, waits_for_the_trailer_of_a_body_without_bytes_however_it_is_cut) {  // failed where assertions are on
  const std::string bytes = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: t\r\n\r\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const auto parser = parsed(bytes, piece);
    ASSERT_TRUE(parser->is_done()) << piece << (parser->refusal() ? parser->refusal()->message : "");
    EXPECT_EQ(parser->take().body, "");
  }
}

TEST(HttpParser, leaves_the_bytes_of_the_next_request) {
  const std::string first = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  HttpParser parser((HttpLimits()));
  EXPECT_EQ(parser.put(first + "GET /next"), first.size());
  EXPECT_TRUE(parser.is_done());
}

TEST(HttpParser, knows_which_client_wants_the_connection_kept) {
  EXPECT_FALSE(parsed("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 7)->take().keep_alive);
  EXPECT_FALSE(parsed("GET / HTTP/1.0\r\n\r\n", 7)->take().keep_alive);
  EXPECT_TRUE(parsed("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 7)->take().keep_alive);
}

TEST(HttpParser, takes_the_path_of_an_absolute_target) {
  EXPECT_EQ(parsed("GET http://h:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n", 99)->take().path, "/p");
  EXPECT_EQ(parsed("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", 99)->take().path, "/");
}

TEST(HttpParser, says_once_that_the_client_waits_for_continue) {
  HttpParser parser((HttpLimits()));
  parser.put("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_TRUE(parser.take_expects_continue());
  EXPECT_FALSE(parser.take_expects_continue());
  HttpParser with_body((HttpLimits()));
  with_body.put("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_FALSE(with_body.take_expects_continue());
}

TEST(HttpParser, refuses_what_is_not_http) {
  for (const std::string_view bytes :
       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello \r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nHost h\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: h\r\n\r\n", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabXX0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nab\r\n0\r\n\r\n"})
    EXPECT_EQ(refused_status(bytes), 400) << bytes;
  EXPECT_EQ(refused_status("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 505);
  EXPECT_EQ(refused_status("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
}

// A proxy that reads two fields, where this server reads one, sees another length or another key.
TEST(HttpParser, refuses_a_field_that_continues_in_the_next_line) {
  for (const char* const fields : {"X-A: b\r\n c\r\n", "X-A: b\r\n\tc\r\n", "X-A:\r\n b\r\n", "X-A: b\r\n \r\n",
                                   "Authorization: Bearer\r\n key\r\n", "X-A: b\r\n Content-Length: 3\r\n"}) {
    const std::string bytes = std::string("POST / HTTP/1.1\r\nHost: h\r\n") + fields + "Content-Length: 2\r\n\r\nhi";
    EXPECT_EQ(refused_status(bytes), 400) << fields;
    EXPECT_EQ(parsed(bytes, 5)->refusal()->message, "the request is not valid HTTP: a header field continues in the next line");
  }
  EXPECT_EQ(refused_status("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), 400) << "the request line";
  const std::string body = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\na\r\n b\n";
  for (std::size_t piece = 1; piece <= body.size(); ++piece) EXPECT_TRUE(parsed(body, piece)->is_done()) << "of the body";
}

TEST(HttpParser, knows_one_transfer_encoding_and_that_of_http_1_1) {
  const auto status = [](std::string_view version, std::string_view encoding) {
    return refused_status("POST / HTTP/" + std::string(version) + "\r\nHost: h\r\nTransfer-Encoding: " + std::string(encoding) +
                          "\r\n\r\n");
  };
  EXPECT_EQ(status("1.0", "chunked"), 400);
  EXPECT_EQ(status("1.1", "gzip, chunked"), 501);
  EXPECT_EQ(status("1.1", "identity"), 501);
  EXPECT_TRUE(parsed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", 3)->is_done());
}

TEST(HttpParser, refuses_a_body_over_the_limit_with_both_numbers) {
  HttpLimits limits;
  limits.max_body_bytes = 10;
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_TRUE(parsed(head + "Content-Length: 10\r\n\r\n0123456789", 3, limits)->is_done());
  const auto parser = parsed(head + "Content-Length: 11\r\n\r\n", 3, limits);
  ASSERT_TRUE(parser->refusal());
  EXPECT_EQ(parser->refusal()->status, 413);
  EXPECT_EQ(parser->path(), "/");
  EXPECT_EQ(parser->refusal()->message, "the request body has 11 bytes; this server accepts 10");
  EXPECT_EQ(refused_status(head + "Content-Length: 99999999999999999999\r\n\r\n", limits), 400);
  const auto chunked = parsed(head + "Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n6\r\n012345\r\n0\r\n\r\n", 5, limits);
  ASSERT_TRUE(chunked->refusal());
  EXPECT_EQ(chunked->refusal()->status, 413);
  EXPECT_EQ(chunked->refusal()->message, "the request body has more than the 10 bytes that this server accepts");
}

TEST(HttpParser, refuses_a_header_that_is_too_long_or_has_too_many_fields) {
  HttpLimits limits;
  limits.max_header_bytes = 1000;
  limits.max_header_count = 5;
  const std::string start = "GET / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(refused_status(start + "A: " + std::string(2000, 'a') + "\r\n\r\n", limits), 431);
  EXPECT_EQ(refused_status("GET /" + std::string(2000, 'a') + " HTTP/1.1\r\n", limits), 431);
  EXPECT_TRUE(parsed(start + "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n\r\n", 9, limits)->is_done());
  EXPECT_EQ(refused_status(start + "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\n\r\n", limits), 431);
}

TEST(HttpParser, stops_after_the_header_when_asked) {
  HttpParser parser((HttpLimits()));
  const std::string header = "POST /a?b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\nContent-Length: 5\r\n\r\n";
  EXPECT_EQ(parser.put_header(header + "hello"), header.size());
  ASSERT_TRUE(parser.is_header_done());
  EXPECT_FALSE(parser.is_done());
  EXPECT_EQ(parser.head().method, "POST");
  EXPECT_EQ(parser.head().path, "/a");
  EXPECT_EQ(parser.head().header("authorization"), "Bearer k");
  EXPECT_EQ(parser.n_remaining(), 5u);
  EXPECT_EQ(parser.put("hello"), 5u);
  EXPECT_EQ(parser.n_remaining(), 0u);
  EXPECT_EQ(parser.take().body, "hello");
}

TEST(HttpParser, takes_from_the_budget_what_has_arrived_and_not_what_was_announced) {
  Budget bodies(/*limit=*/40'000, /*small=*/40'000);
  HttpParser parser(HttpLimits(), &bodies);
  const std::string header = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n";
  parser.put(header + std::string(100, 'x'));
  EXPECT_FALSE(parser.refusal());
  EXPECT_GE(bodies.used(), 100);
  EXPECT_LT(bodies.used(), 4'000);
  parser.put(std::string(50'000, 'x'));
  ASSERT_TRUE(parser.refusal());
  EXPECT_EQ(parser.refusal()->status, 503);
  EXPECT_NE(parser.refusal()->message.find("40000"), std::string::npos) << parser.refusal()->message;
  EXPECT_EQ(bodies.n_refused(), 1);
}

TEST(HttpParser, a_request_keeps_what_its_body_takes_until_it_ends) {
  Budget bodies(/*limit=*/100'000, /*small=*/100'000);
  {
    HttpParser parser(HttpLimits(), &bodies);
    parser.put("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + std::string(100, 'x') +
               "\r\n0\r\n\r\n");
    ASSERT_TRUE(parser.is_done());
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.body_share.size(), bodies.used());
    EXPECT_GE(bodies.used(), 100);
  }
  EXPECT_EQ(bodies.used(), 0);
}

TEST(HttpParser, does_not_wait_for_the_end_of_an_endless_chunk_header_or_trailer) {
  HttpLimits limits;
  limits.max_header_bytes = 1000;
  const std::string start = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_TRUE(parsed(start + "1;" + std::string(5000, 'x'), 100, limits)->refusal());
  EXPECT_TRUE(parsed(start + "0\r\n" + std::string(5000, 'x'), 100, limits)->refusal());
}

}  // namespace
}  // namespace baton
