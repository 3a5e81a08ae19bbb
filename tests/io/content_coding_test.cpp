/// Compressed bodies: what the libraries write, in every coding; damaged and cut ones; bombs.
#include "io/content_coding.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

namespace baton {
namespace {

constexpr int kGzip = 16;

std::string compressed_by_zlib(std::string_view text, int window_bits) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string compressed_by_zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string bytes(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);  // as a stream of unknown length
  while (ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) != 0) {
  }
  ZSTD_freeCCtx(context);
  bytes.resize(out.pos);
  return bytes;
}

struct Case {
  ContentCoding coding;
  const char* name;
  std::function<std::string(std::string_view)> compress;
};

std::vector<Case> cases() {
  return {
      {ContentCoding::gzip, "gzip", [](std::string_view text) { return compressed_by_zlib(text, MAX_WBITS + kGzip); }},
      {ContentCoding::deflate, "deflate", [](std::string_view text) { return compressed_by_zlib(text, MAX_WBITS); }},
      {ContentCoding::deflate, "raw deflate", [](std::string_view text) { return compressed_by_zlib(text, -MAX_WBITS); }},
      {ContentCoding::zstd, "zstd", [](std::string_view text) { return compressed_by_zstd(text); }},
  };
}

DecodeLimits limits(std::size_t max_bytes = 32 << 20) {
  return {.max_bytes = max_bytes, .has_room = [](std::size_t) { return true; }, .is_cancelled = {}};
}

std::string text_of(std::size_t n) {
  std::string text;
  for (std::size_t i = 0; text.size() < n; ++i) text += "{\"" + std::to_string(i * i) + "\": \"some text\"}, ";
  text.resize(n);
  return text;
}

TEST(ContentCoding, names_in_any_case) {
  EXPECT_EQ(parse_content_coding("").value(), ContentCoding::identity);
  EXPECT_EQ(parse_content_coding("Identity").value(), ContentCoding::identity);
  EXPECT_EQ(parse_content_coding("GZIP").value(), ContentCoding::gzip);
  EXPECT_EQ(parse_content_coding("x-gzip").value(), ContentCoding::gzip);
  EXPECT_EQ(parse_content_coding("deflate").value(), ContentCoding::deflate);
  EXPECT_EQ(parse_content_coding("zstd").value(), ContentCoding::zstd);
  for (const char* other : {"br", "gzip, gzip", "compress", "gzip;q=1", " "})
    EXPECT_EQ(parse_content_coding(other).error().code, ErrorCode::unsupported) << other;
}

TEST(ContentCoding, a_text_of_any_length_comes_back) {
  for (const Case& of : cases())
    for (const std::size_t n : {0, 1, 2, 1000, 65535, 65536, 65537, 131072, 3'000'000}) {
      const std::string text = text_of(n);
      const auto decoded = decode_content(of.coding, of.compress(text), "the body", limits(std::max<std::size_t>(n, 1)));
      ASSERT_TRUE(decoded) << of.name << " " << n << ": " << decoded.error().message;
      EXPECT_EQ(*decoded, text) << of.name << " " << n;
    }
}

TEST(ContentCoding, streams_one_after_another_are_one_text) {
  for (const Case& of : cases()) {
    if (std::string_view(of.name).ends_with("deflate")) continue;
    const auto decoded = decode_content(of.coding, of.compress("one, ") + of.compress("two"), "the body", limits());
    ASSERT_TRUE(decoded) << of.name;
    EXPECT_EQ(*decoded, "one, two") << of.name;
  }
}

TEST(ContentCoding, a_body_that_is_cut_or_damaged_is_refused) {
  for (const Case& of : cases()) {
    const std::string whole = of.compress(text_of(5000));
    for (std::size_t n = 1; n < whole.size(); n += 7) {
      const auto decoded = decode_content(of.coding, std::string_view(whole).substr(0, n), "the body", limits());
      ASSERT_FALSE(decoded) << of.name << " " << n;
      EXPECT_EQ(decoded.error().code, ErrorCode::invalid_request);
    }
    for (const std::string& wrong :
         {std::string("{}"), std::string(300, 'x'), whole + "x", "x" + whole, whole + std::string(9, '\0')})
      EXPECT_FALSE(decode_content(of.coding, wrong, "the body", limits())) << of.name;
  }
  for (const Case& of : cases()) {  // what has a checksum finds every changed bit
    if (of.coding != ContentCoding::gzip) continue;
    std::string bytes = of.compress(text_of(100));
    for (std::size_t i = 18; i < bytes.size(); ++i) {
      bytes[i] ^= 4;
      EXPECT_FALSE(decode_content(of.coding, bytes, "the body", limits())) << i;
      bytes[i] ^= 4;
    }
  }
}

TEST(ContentCoding, a_bomb_ends_at_the_limit_and_takes_no_more_memory) {
  const std::string zeros(50'000'000, '0');
  for (const Case& of : cases()) {
    const std::string bomb = of.compress(zeros);
    EXPECT_LT(bomb.size(), 100'000u) << of.name;
    std::size_t most = 0;
    DecodeLimits small = limits(1'000'000);
    small.has_room = [&](std::size_t n) {
      most = std::max(most, n);
      return true;
    };
    const auto refused = decode_content(of.coding, bomb, "the body", small);
    ASSERT_FALSE(refused) << of.name;
    EXPECT_EQ(refused.error().code, ErrorCode::too_large);
    EXPECT_EQ(refused.error().message, "the body has more than the 1000000 bytes that are accepted when it is decoded");
    EXPECT_EQ(most, 1'000'000u) << of.name;
  }
}

TEST(ContentCoding, a_text_of_exactly_the_limit_is_read) {
  for (const Case& of : cases()) {
    const std::string text = text_of(100'000);
    EXPECT_TRUE(decode_content(of.coding, of.compress(text), "the body", limits(100'000))) << of.name;
    EXPECT_FALSE(decode_content(of.coding, of.compress(text), "the body", limits(99'999))) << of.name;
  }
}

TEST(ContentCoding, without_room_or_reader_it_ends) {
  for (const Case& of : cases()) {
    const std::string bytes = of.compress(text_of(10'000'000));
    DecodeLimits tight = limits();
    tight.has_room = [](std::size_t n) { return n <= 1 << 20; };
    EXPECT_EQ(decode_content(of.coding, bytes, "the body", tight).error().code, ErrorCode::unavailable) << of.name;
    DecodeLimits left = limits();
    int n_asked = 0;
    left.is_cancelled = [&] { return ++n_asked > 3; };
    EXPECT_EQ(decode_content(of.coding, bytes, "the body", left).error().code, ErrorCode::unavailable) << of.name;
    EXPECT_EQ(n_asked, 4) << of.name;
  }
}

TEST(ContentCoding, a_window_over_eight_mebibytes_is_refused) {
  const std::string text = text_of(20'000'000);
  EXPECT_TRUE(decode_content(ContentCoding::zstd, compressed_by_zstd(text, 23), "the body", limits()));
  EXPECT_FALSE(decode_content(ContentCoding::zstd, compressed_by_zstd(text, 24), "the body", limits()));
}

}  // namespace
}  // namespace baton
