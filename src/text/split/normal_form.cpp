/// Unicode's normalisation forms: characters and their marks in one spelling.
#include "text/split/normal_form.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "core/check.h"
#include "text/split/unicode.h"
#include "text/tables/character_tables.h"

namespace baton::unicode {

namespace {

utf8proc_option_t options_of(NormalForm form) {
  const bool is_composed = form == NormalForm::c || form == NormalForm::kc;
  const bool is_compatible = form == NormalForm::kc || form == NormalForm::kd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

/// The first byte of the characters that a form may change: from U+0300 on for form C, all but ASCII for the others.
unsigned char first_affected_byte(NormalForm form) { return form == NormalForm::c ? 0xCC : 0x80; }

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  const auto is_affected = [first = first_affected_byte(form)](char byte) { return static_cast<unsigned char>(byte) >= first; };
  if (std::ranges::none_of(text, is_affected)) return std::string(text);

  const utf8proc_option_t options = options_of(form);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto n_bytes = static_cast<utf8proc_ssize_t>(text.size());
  std::vector<utf8proc_int32_t> characters(text.size() + 1);  // one more for the 0 that utf8proc_reencode writes
  utf8proc_ssize_t n = utf8proc_decompose(bytes, n_bytes, characters.data(), n_bytes, options);
  if (n > n_bytes) {  // rare: characters with more parts than bytes
    characters.resize(static_cast<std::size_t>(n) + 1);
    n = utf8proc_decompose(bytes, n_bytes, characters.data(), n, options);
  }
  check(n >= 0, utf8proc_errmsg(n));
  n = utf8proc_reencode(characters.data(), n, options);
  check(n >= 0, utf8proc_errmsg(n));
  return std::string(reinterpret_cast<const char*>(characters.data()), static_cast<std::size_t>(n));
}

std::string normalized_by_unicode_9(std::string_view text, NormalForm form) {
  // A character that the form does not know is one that nothing is joined to or moved across.
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0xDF) {
      at += byte < 0x80 ? 1 : 2;
      continue;
    }
    const Step step = decode_front(text.substr(at));
    if (is_beyond_normalization(step.code_point)) {
      out += normalized(text.substr(done, at - done), form);
      out += text.substr(at, step.n_bytes);
      done = at + step.n_bytes;
    }
    at += step.n_bytes;
  }
  if (done == 0) return normalized(text, form);
  return out += normalized(text.substr(done), form);
}

}  // namespace baton::unicode
