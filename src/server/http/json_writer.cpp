/// Keys, and strings cut between characters.
#include "server/http/json_writer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace baton {

void JsonObjectWriter::key(std::string_view name) {
  out_ += std::exchange(is_empty_, false) ? "\"" : ",\"";
  out_ += name;
  out_ += "\":";
}

void JsonObjectWriter::add(std::string_view name, const json::Value& value) {
  key(name);
  out_ += json::dump(value);
}

Resumable write_json_characters(std::string_view text, std::string& out) {
  constexpr std::size_t kStepBytes = 16 << 10;
  while (!text.empty()) {
    std::size_t n = std::min(kStepBytes, text.size());
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;  // after a whole character
    const std::string part = json::dump(text.substr(0, n));
    out.append(part, 1, part.size() - 2);
    text.remove_prefix(n);
    if (!text.empty()) co_await Resumable::pause();
  }
}

Resumable write_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (Resumable characters = write_json_characters(text, out); characters.resume();) co_await Resumable::pause();
  out += '"';
}

}  // namespace baton
