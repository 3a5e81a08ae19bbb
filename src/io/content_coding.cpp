/// Decodes with zlib and libzstd.
#include "io/content_coding.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "core/check.h"
#include "core/utf8.h"

namespace baton {
namespace {

constexpr std::array kNames = std::to_array<std::pair<std::string_view, ContentCoding>>({
    {"", ContentCoding::identity},
    {"identity", ContentCoding::identity},
    {"gzip", ContentCoding::gzip},
    {"x-gzip", ContentCoding::gzip},
    {"deflate", ContentCoding::deflate},
    {"zstd", ContentCoding::zstd},
});

/// Reads some input and writes some output; both spans are cut to what is left.
class Decoder {
 public:
  enum class State { running, at_end, damaged };
  virtual ~Decoder() = default;
  /// at_end: a whole stream was read, and another may follow.
  virtual State decode(std::string_view& input, std::span<char>& output) = 0;
};

class ZlibDecoder final : public Decoder {
 public:
  explicit ZlibDecoder(int window_bits) {
    if (inflateInit2(&stream_, window_bits) != Z_OK) throw std::bad_alloc();
  }
  ZlibDecoder(const ZlibDecoder&) = delete;
  ZlibDecoder& operator=(const ZlibDecoder&) = delete;
  ~ZlibDecoder() override { inflateEnd(&stream_); }

  State decode(std::string_view& input, std::span<char>& output) override {
    if (is_at_end_) inflateReset(&stream_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));  // zlib does not write there
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(output.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    input.remove_prefix(input.size() - stream_.avail_in);
    output = output.last(stream_.avail_out);
    is_at_end_ = status == Z_STREAM_END;
    if (is_at_end_) return State::at_end;
    return status == Z_OK || status == Z_BUF_ERROR ? State::running : State::damaged;
  }

 private:
  z_stream stream_ = {};
  bool is_at_end_ = false;
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {
    constexpr int kWindowLog = 23;
    if (context_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLog);
  }

  State decode(std::string_view& input, std::span<char>& output) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output.data(), output.size(), 0};
    const std::size_t status = ZSTD_decompressStream(context_.get(), &out, &in);
    input.remove_prefix(in.pos);
    output = output.subspan(out.pos);
    if (ZSTD_isError(status) != 0U) return State::damaged;
    return status == 0 ? State::at_end : State::running;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
};

/// Some programs send deflate without the header of zlib (RFC 1950), which tells itself by its check bits.
bool has_zlib_header(std::string_view bytes) {
  constexpr unsigned kMethod = 8;
  constexpr unsigned kMultiple = 31;
  if (bytes.size() < 2) return false;
  const auto first = static_cast<unsigned char>(bytes[0]);
  return (first & 0xFU) == kMethod && (first * 256U + static_cast<unsigned char>(bytes[1])) % kMultiple == 0;
}

std::unique_ptr<Decoder> decoder_of(ContentCoding coding, std::string_view bytes) {
  constexpr int kGzip = 16;
  switch (coding) {
    case ContentCoding::identity: break;
    case ContentCoding::gzip: return std::make_unique<ZlibDecoder>(MAX_WBITS + kGzip);
    case ContentCoding::deflate: return std::make_unique<ZlibDecoder>(has_zlib_header(bytes) ? MAX_WBITS : -MAX_WBITS);
    case ContentCoding::zstd: return std::make_unique<ZstdDecoder>();
  }
  check_failed("decode_content: identity has no decoder");
}

}  // namespace

Result<ContentCoding> parse_content_coding(std::string_view header) {
  const auto is_same = [&](const auto& row) { return std::ranges::equal(row.first, header, {}, {}, ascii::lower); };
  if (const auto* found = std::ranges::find_if(kNames, is_same); found != kNames.end()) return found->second;
  return fail(ErrorCode::unsupported, fmt::format("the Content-Encoding of the body is '{}'; this server reads one of {}",
                                                  header.substr(0, 100), kContentCodings));
}

Result<std::string> decode_content(ContentCoding coding, std::string_view bytes, std::string_view what,
                                   const DecodeLimits& limits) {
  constexpr std::size_t kFirstBytes = 64 << 10;
  constexpr std::size_t kMostBytesAtOnce = 1 << 20;  // between two questions whether it is still wanted
  const std::unique_ptr<Decoder> decoder = decoder_of(coding, bytes);
  std::string text;
  std::size_t size = 0;
  auto state = Decoder::State::at_end;
  // A decoder that has filled its output may hold more although no input is left.
  for (bool is_full = false; !bytes.empty() || is_full;) {
    if (limits.is_cancelled && limits.is_cancelled())
      return fail(ErrorCode::unavailable, fmt::format("{} is not decoded to its end: no client waits for it any more", what));
    if (size == text.size()) {
      const std::size_t capacity = std::min(std::max(kFirstBytes, 2 * size), limits.max_bytes + 1);
      if (!limits.has_room(std::min(capacity, limits.max_bytes)))
        return fail(ErrorCode::unavailable, fmt::format("{} is compressed, and there is no room to decode it", what));
      text.resize(capacity);
    }
    std::span<char> output(text.data() + size, std::min(text.size() - size, kMostBytesAtOnce));
    const std::size_t before = output.size();
    const std::size_t n_input = bytes.size();
    state = decoder->decode(bytes, output);
    size += before - output.size();
    if (size > limits.max_bytes)
      return fail(ErrorCode::too_large,
                  fmt::format("{} has more than the {} bytes that are accepted when it is decoded", what, limits.max_bytes));
    is_full = output.empty() && state == Decoder::State::running;
    const bool is_stuck = state == Decoder::State::running && bytes.size() == n_input && output.size() == before;
    if (state == Decoder::State::damaged || is_stuck) break;
  }
  if (state != Decoder::State::at_end)
    return fail(ErrorCode::invalid_request, fmt::format("{} is damaged or cut: its Content-Encoding does not fit it", what));
  text.resize(size);
  return text;
}

}  // namespace baton
