/// One transfer at a time, over libcurl.
#include "io/http_client.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <thread>

#include <curl/curl.h>
#include <fmt/format.h>

#include "core/file_descriptor.h"
#include "core/utf8.h"

namespace baton {
namespace {

constexpr std::size_t kMaxBodyBytes = std::size_t{64} << 20;
constexpr int kMaxRedirects = 5;
constexpr int kMaxAttempts = 5;

/// A libcurl handle with the options that all requests share.
class Transfer {
 public:
  Transfer(const std::string& url, const std::string& token)
      : url_(url), handle_(curl_easy_init(), &curl_easy_cleanup), headers_(nullptr, &curl_slist_free_all) {
    if (handle_ == nullptr) return;
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, 10L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);  // nothing for half a minute is a broken connection
    set(CURLOPT_LOW_SPEED_TIME, 30L);
    set(CURLOPT_MAXREDIRS, static_cast<long>(kMaxRedirects));
    set(CURLOPT_USERAGENT, "baton");
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, &reply_);
    if (!token.empty()) {
      headers_.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + token).c_str()));
      set(CURLOPT_HTTPHEADER, headers_.get());
    }
  }

  template <class Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(handle_.get(), option, value);
  }

  /// Runs it; false where no whole reply came (see why).
  bool perform() {
    if (handle_ == nullptr) return false;
    const CURLcode code = curl_easy_perform(handle_.get());
    has_timed_out_ = code == CURLE_OPERATION_TIMEDOUT;
    reply_.status = status();
    if (code != CURLE_OK && error_[0] == '\0') std::strncpy(error_, curl_easy_strerror(code), sizeof(error_) - 1);
    return code == CURLE_OK;
  }
  long status() const {
    long status = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  bool has_timed_out() const { return has_timed_out_; }
  std::string why() const { return handle_ == nullptr ? "libcurl does not start" : error_; }
  HttpReply& reply() { return reply_; }

 private:
  /// Keeps the headers of the last reply of a chain of redirects.
  static std::size_t on_header(const char* data, std::size_t, std::size_t size, void* reply_pointer) {
    auto& headers = static_cast<HttpReply*>(reply_pointer)->headers;
    std::string_view line(data, size);
    if (line.starts_with("HTTP/")) headers.clear();
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), ascii::lower);
    line.remove_prefix(colon + 1);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front()))) line.remove_prefix(1);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
    headers[name] = std::string(line);
    return size;
  }

  std::string url_;
  std::unique_ptr<CURL, void (*)(CURL*)> handle_;
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers_;
  HttpReply reply_;
  char error_[CURL_ERROR_SIZE] = {};
  bool has_timed_out_ = false;
};

/// An address that redirects move.
class Address {
 public:
  explicit Address(const std::string& url) { move(url); }
  Address(const Address& other) : parts_(curl_url_dup(other.parts_.get()), &curl_url_cleanup) {}
  Address& operator=(Address&&) = default;

  /// To `location`, which may be relative; false where it is no address.
  bool move(const std::string& location) {
    return curl_url_set(parts_.get(), CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK;
  }
  std::string text() const { return part(CURLUPART_URL, 0); }
  bool has_server_of(const std::string& url) const {
    const Address other(url);
    for (const CURLUPart which : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT})
      if (part(which) != other.part(which)) return false;
    return true;
  }

 private:
  std::string part(CURLUPart which, unsigned flags = CURLU_DEFAULT_PORT) const {
    char* text = nullptr;
    if (curl_url_get(parts_.get(), which, &text, flags) != CURLUE_OK) return "";
    const std::unique_ptr<char, void (*)(void*)> held(text, &curl_free);
    return text;
  }

  std::unique_ptr<CURLU, void (*)(CURLU*)> parts_{curl_url(), &curl_url_cleanup};
};

tl::unexpected<Error> no_reply(const std::string& url, const std::string& why) {
  return fail(ErrorCode::unavailable, fmt::format("{}: {}", url, why));
}

/// A file that a download grows. The lock makes other processes that want the same file wait.
struct Sink {
  Transfer* request = nullptr;
  FileDescriptor file;
  std::uint64_t size_bytes = 0;  ///< of the file now
  std::uint64_t wanted_bytes = 0;
  bool is_first_data = true;
  bool is_too_long = false;
  const DownloadProgress* progress = nullptr;

  bool restart() {
    size_bytes = 0;
    return ::ftruncate(file.number(), 0) == 0 && ::lseek(file.number(), 0, SEEK_SET) == 0;
  }

  /// Appends what came; returning another size than `size` ends the transfer.
  static std::size_t on_data(const char* data, std::size_t, std::size_t size, void* sink_pointer) {
    auto& sink = *static_cast<Sink*>(sink_pointer);
    const long status = sink.request->status();
    if (status != 200 && status != 206) return size;  // the body of an error
    if (sink.is_first_data) {
      sink.is_first_data = false;
      if (status == 200 && sink.size_bytes > 0 && !sink.restart()) return 0;  // the server sends all from the start
    }
    sink.is_too_long = sink.size_bytes + size > sink.wanted_bytes;
    if (sink.is_too_long) return 0;
    if (!sink.file.write_all(std::as_bytes(std::span(data, size)))) return 0;
    sink.size_bytes += size;
    if (*sink.progress) (*sink.progress)(sink.size_bytes, sink.wanted_bytes);
    return size;
  }
};

/// One request for what is missing; true when the reply ended in order.
bool continue_download(Transfer& request, Sink& sink) {
  sink.request = &request;
  sink.is_first_data = true;
  request.set(CURLOPT_FOLLOWLOCATION, 1L);
  request.set(CURLOPT_WRITEFUNCTION, &Sink::on_data);
  request.set(CURLOPT_WRITEDATA, &sink);
  // Not CURLOPT_RESUME_FROM: that fails where the server answers with the whole file.
  const std::string rest = std::to_string(sink.size_bytes) + "-";
  if (sink.size_bytes > 0) request.set(CURLOPT_RANGE, rest.c_str());
  return request.perform();
}

}  // namespace

Result<HttpReply> http_get(const std::string& url, const std::string& token) {
  Transfer request(url, token);
  request.set(CURLOPT_FOLLOWLOCATION, 1L);
  request.set(CURLOPT_WRITEDATA, &request.reply().body);
  using WriteFunction = std::size_t (*)(const char*, std::size_t, std::size_t, void*);
  const WriteFunction on_data = [](const char* data, std::size_t, std::size_t size, void* body_pointer) {
    auto& body = *static_cast<std::string*>(body_pointer);
    if (body.size() + size > kMaxBodyBytes) return std::size_t{0};
    body.append(data, size);
    return size;
  };
  request.set(CURLOPT_WRITEFUNCTION, on_data);
  if (!request.perform()) return no_reply(url, request.why());
  return std::move(request.reply());
}

Result<HttpReply> http_head(const std::string& url, const std::string& token,
                            const std::function<bool(const HttpReply&)>& is_enough) {
  Address target(url);
  for (int i = 0; i <= kMaxRedirects; ++i) {
    Transfer request(target.text(), target.has_server_of(url) ? token : "");
    request.set(CURLOPT_NOBODY, 1L);
    if (!request.perform()) return no_reply(target.text(), request.why());
    HttpReply& reply = request.reply();
    const auto location = reply.headers.find("location");
    if (reply.status / 100 != 3 || location == reply.headers.end()) return std::move(reply);
    Address next = target;
    if (!next.move(location->second)) return no_reply(target.text(), fmt::format("a redirect to {}", location->second));
    if (!next.has_server_of(target.text()) && is_enough(reply)) return std::move(reply);
    target = std::move(next);
  }
  return no_reply(url, "too many redirects");
}

Result<void> http_download(const std::string& url, const std::string& token, const std::filesystem::path& path,
                           std::uint64_t size_bytes, const DownloadProgress& progress, const SpeedFloor& floor) {
  Sink sink;
  sink.wanted_bytes = size_bytes;
  sink.progress = &progress;
  sink.file = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (sink.file.number() < 0 && errno == ELOOP)
    return fail(ErrorCode::io, fmt::format("{} is a link; downloads do not write through links: remove it", path.string()));
  if (sink.file.number() < 0 || ::flock(sink.file.number(), LOCK_EX) != 0)
    return fail(ErrorCode::io, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  const off_t end = ::lseek(sink.file.number(), 0, SEEK_END);
  sink.size_bytes = end < 0 ? 0 : static_cast<std::uint64_t>(end);
  if (sink.size_bytes > size_bytes && !sink.restart())
    return fail(ErrorCode::io, fmt::format("cannot write {}", path.string()));

  std::string why;
  for (int attempt = 0; attempt < kMaxAttempts && sink.size_bytes < size_bytes; ++attempt) {
    const std::uint64_t before = sink.size_bytes;
    Transfer request(url, token);
    request.set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(floor.bytes_per_s));
    request.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(floor.seconds));
    const bool ended = continue_download(request, sink);
    const long status = request.status();
    if (request.has_timed_out() && (status == 200 || status == 206))
      return fail(ErrorCode::unavailable,
                  fmt::format("{}: fewer than {} bytes a second came for {} s; {} of {} bytes are there, and the next attempt "
                              "continues after them",
                              url, floor.bytes_per_s, floor.seconds, sink.size_bytes, size_bytes));
    if (status >= 400 && status < 500) return fail(ErrorCode::unavailable, fmt::format("{}: HTTP status {}", url, status));
    if (sink.is_too_long)
      return fail(ErrorCode::invalid_data, fmt::format("{}: the file has more than the {} bytes announced", url, size_bytes));
    why = status >= 500 ? fmt::format("HTTP status {}", status)
          : ended       ? fmt::format("the reply ended after {} of {} bytes", sink.size_bytes, size_bytes)
                        : request.why();
    if (sink.size_bytes == before) std::this_thread::sleep_for(std::chrono::milliseconds(200) * (1 << attempt));
  }
  if (sink.size_bytes != size_bytes) return fail(ErrorCode::unavailable, fmt::format("{}: {}", url, why));
  if (::fsync(sink.file.number()) != 0)
    return fail(ErrorCode::io, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  return {};
}

}  // namespace baton
