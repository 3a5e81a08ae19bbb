/// Status line, headers, chunks.
#include "bench/http/response_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace baton {
namespace {

constexpr std::size_t kMaxHeadBytes = 64 * 1024;

bool equal_names(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) { return std::tolower(static_cast<unsigned char>(x)) == y; });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

}  // namespace

void ResponseReader::blame(std::string_view fault) {
  if (fault_.empty()) fault_ = fault;
}

std::string_view ResponseReader::status_line() const { return std::string_view(head_).substr(0, head_.find("\r\n")); }

std::string_view ResponseReader::header(std::string_view name) const {
  std::string_view rest = head_;
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find("\r\n"), rest.size() - 2) + 2);
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && equal_names(line.substr(0, colon), name)) return trimmed(line.substr(colon + 1));
  }
  return {};
}

bool ResponseReader::is_chunked() const { return has_head() && equal_names(header("transfer-encoding"), "chunked"); }

bool ResponseReader::keeps_connection() const {
  return has_head() && head_.starts_with("HTTP/1.1") && !equal_names(header("connection"), "close") &&
         (is_chunked() || !header("content-length").empty());
}

void ResponseReader::push(std::string_view bytes, const std::function<void(std::string_view)>& on_body) {
  input_.append(bytes);
  for (bool goes_on = true; goes_on && fault_.empty();) {
    switch (phase_) {
      case Phase::head: goes_on = take_head(); break;
      case Phase::chunk_size: goes_on = take_chunk_size(); break;
      case Phase::chunk_end: goes_on = take_chunk_end(); break;
      case Phase::trailer: goes_on = take_trailer(); break;
      case Phase::done: goes_on = false; break;
      case Phase::chunk_data:
      case Phase::counted:
      case Phase::until_close: goes_on = take_data(on_body); break;
    }
  }
  input_.erase(0, read_);
  read_ = 0;
}

void ResponseReader::close() {
  if (phase_ == Phase::until_close) phase_ = Phase::done;
  if (phase_ != Phase::done) blame("the server closed the connection before the answer's end");
}

bool ResponseReader::take_head() {
  const std::size_t end = input_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (input_.size() > kMaxHeadBytes || (input_.size() >= 5 && !input_.starts_with("HTTP/"))) blame("the answer is not HTTP");
    return false;
  }
  head_ = input_.substr(0, end + 2);
  read_ = end + 4;
  const std::size_t space = head_.find(' ');
  if (!head_.starts_with("HTTP/1.") || space == std::string::npos ||
      std::from_chars(head_.data() + space + 1, head_.data() + head_.size(), status_).ec != std::errc()) {
    blame("the answer is not HTTP/1.1");
    return false;
  }
  const std::string_view length = header("content-length");
  if (equal_names(header("transfer-encoding"), "chunked")) {
    phase_ = Phase::chunk_size;
  } else if (length.empty()) {
    phase_ = Phase::until_close;
  } else {
    phase_ = Phase::counted;
    if (std::from_chars(length.data(), length.data() + length.size(), n_left_).ec != std::errc())
      blame("the Content-Length is no number");
    if (n_left_ == 0) phase_ = Phase::done;
  }
  return true;
}

bool ResponseReader::take_chunk_size() {
  const std::size_t line_end = input_.find("\r\n", read_);
  if (line_end == std::string::npos) return false;
  const char* const first = input_.data() + read_;
  const char* const last = input_.data() + line_end;
  const auto [end, error] = std::from_chars(first, last, n_left_, 16);
  if (error != std::errc() || (end != last && *end != ';' && *end != ' ')) {  // extensions may follow the size
    blame("a chunk has no size");
    return false;
  }
  read_ = line_end + 2;
  phase_ = n_left_ == 0 ? Phase::trailer : Phase::chunk_data;
  return true;
}

bool ResponseReader::take_chunk_end() {
  if (input_.size() < read_ + 2) return false;
  if (std::string_view(input_).substr(read_, 2) != "\r\n") blame("a chunk is longer than its size");
  read_ += 2;
  phase_ = Phase::chunk_size;
  return true;
}

bool ResponseReader::take_trailer() {
  const std::size_t line_end = input_.find("\r\n", read_);
  if (line_end == std::string::npos) return false;
  if (line_end == read_) phase_ = Phase::done;
  read_ = line_end + 2;
  return true;
}

bool ResponseReader::take_data(const std::function<void(std::string_view)>& on_body) {
  std::string_view piece = std::string_view(input_).substr(read_);
  if (phase_ != Phase::until_close) {
    piece = piece.substr(0, n_left_);
    n_left_ -= piece.size();
  }
  read_ += piece.size();
  const bool is_complete = phase_ != Phase::until_close && n_left_ == 0;
  if (is_complete) phase_ = phase_ == Phase::chunk_data ? Phase::chunk_end : Phase::done;
  if (!piece.empty()) on_body(piece);
  return is_complete;
}

}  // namespace baton
