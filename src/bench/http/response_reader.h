/// One HTTP/1.1 response, read as its bytes arrive.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace baton {

/// Reads the head and hands on the body, which comes in chunks, with a Content-Length, or until the server closes the
/// connection. Thread: one at a time.
class ResponseReader {
 public:
  /// Takes bytes, however they are cut. `on_body` gets the body's bytes piece by piece; it is called after the head is
  /// known. Bytes behind the response are not read (has_more).
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_body);
  /// The server closed the connection. This ends a body without a length; any other that is incomplete has a fault.
  void close();

  bool has_head() const { return phase_ != Phase::head; }
  bool is_done() const { return phase_ == Phase::done; }
  bool has_more() const { return is_done() && !input_.empty(); }
  /// The first fault, after which nothing more is read; empty if there was none.
  const std::string& fault() const { return fault_; }

  int status() const { return status_; }
  std::string_view status_line() const;
  /// The value of a header, in any case; empty if the response does not have it. `name` is in lower case.
  std::string_view header(std::string_view name) const;
  bool is_chunked() const;
  /// Whether another request may be sent on the connection.
  bool keeps_connection() const;

 private:
  enum class Phase { head, chunk_size, chunk_data, chunk_end, trailer, counted, until_close, done };

  bool take_head();
  bool take_chunk_size();
  bool take_chunk_end();
  bool take_trailer();
  bool take_data(const std::function<void(std::string_view)>& on_body);
  void blame(std::string_view fault);

  Phase phase_ = Phase::head;
  std::string input_;  // unread from read_ on
  std::size_t read_ = 0;
  std::string head_;  // with the last header's line end
  int status_ = 0;
  std::size_t n_left_ = 0;  // bytes of the chunk or of the body
  std::string fault_;
};

}  // namespace baton
