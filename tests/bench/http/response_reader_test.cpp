/// Responses with chunks, with a length and without either (bench/http/response_reader.h).
#include "bench/http/response_reader.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace baton {
namespace {

struct Read {
  ResponseReader response;
  std::string body;
};

Read read(std::string_view bytes, std::size_t size = 1 << 20) {
  Read made;
  for (std::size_t at = 0; at < bytes.size(); at += size)
    made.response.push(bytes.substr(at, size), [&](std::string_view piece) { made.body += piece; });
  return made;
}

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding:  Chunked\r\n\r\n"
    "3\r\nabc\r\n0a;x=1\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";

TEST(ResponseReader, joins_chunks_however_they_are_cut) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{5}, kChunked.size()}) {
    const Read made = read(kChunked, size);
    EXPECT_TRUE(made.response.is_done());
    EXPECT_EQ(made.response.fault(), "");
    EXPECT_EQ(made.body, "abc0123456789");
    EXPECT_EQ(made.response.status(), 200);
    EXPECT_EQ(made.response.header("content-type"), "text/event-stream");
    EXPECT_EQ(made.response.header("content"), "");
    EXPECT_TRUE(made.response.keeps_connection());
    EXPECT_FALSE(made.response.has_more());
  }
}

TEST(ResponseReader, hands_on_a_piece_of_a_chunk_before_its_end) {
  const Read made = read(kChunked.substr(0, kChunked.find("abc") + 2));
  EXPECT_EQ(made.body, "ab");
  EXPECT_FALSE(made.response.is_done());
}

TEST(ResponseReader, reads_a_body_of_a_length_and_no_more) {
  const Read made = read("HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcd");
  EXPECT_TRUE(made.response.is_done());
  EXPECT_EQ(made.body, "abc");
  EXPECT_EQ(made.response.status_line(), "HTTP/1.1 400 Bad Request");
  EXPECT_FALSE(made.response.keeps_connection());
  EXPECT_TRUE(made.response.has_more());
  EXPECT_TRUE(read("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").response.is_done());
}

TEST(ResponseReader, reads_until_the_connection_closes_where_there_is_no_length) {
  Read made = read("HTTP/1.0 200 OK\r\n\r\nabc");
  EXPECT_FALSE(made.response.is_done());
  made.response.close();
  EXPECT_TRUE(made.response.is_done());
  EXPECT_FALSE(made.response.keeps_connection());
  EXPECT_EQ(made.body, "abc");
}

TEST(ResponseReader, says_what_is_wrong) {
  EXPECT_EQ(read("220 mail.example ESMTP\r\n").response.fault(), "the answer is not HTTP");
  EXPECT_EQ(read("HTTP/2 200\r\n\r\n").response.fault(), "the answer is not HTTP/1.1");
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n").response.fault(), "the Content-Length is no number");
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").response.fault(), "a chunk has no size");
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n").response.fault(),
            "a chunk is longer than its size");
  Read cut = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab");
  cut.response.close();
  EXPECT_EQ(cut.response.fault(), "the server closed the connection before the answer's end");
}

}  // namespace
}  // namespace baton
