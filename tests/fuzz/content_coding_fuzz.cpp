/// Fuzzes the decoders of compressed bodies: the first byte says which, the second how much they may write.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.h"
#include "io/content_coding.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  constexpr baton::ContentCoding kCodings[]{baton::ContentCoding::gzip, baton::ContentCoding::deflate,
                                            baton::ContentCoding::zstd};
  const std::string_view bytes(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::size_t most = std::size_t{1} << data[1] % 21;
  std::size_t asked = 0;
  const auto has_room = [&](std::size_t n) {
    baton::check(n <= most, "room beyond the limit is asked for");
    asked = n;
    return true;
  };
  const auto text = baton::decode_content(kCodings[data[0] % 3], bytes, "the body",
                                          {.max_bytes = most, .has_room = has_room, .is_cancelled = {}});
  if (text)
    baton::check(text->size() <= most && text->size() <= asked, "more was written than was asked for");
  else
    baton::check(!text.error().message.empty(), "a refusal says why");
  return 0;
}
