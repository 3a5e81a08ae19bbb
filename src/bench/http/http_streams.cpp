/// Many HTTP requests at once: libcurl's multi interface, told by epoll which sockets are ready.
#include "bench/http/http_streams.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

#include "core/check.h"
#include "core/file_descriptor.h"
#include "core/limits/open_files.h"

namespace baton {
namespace {

constexpr std::size_t kOtherFiles = 64;  ///< that the process has open beside the connections
constexpr std::string_view kCut = "the server closed the connection before the answer's end";

/// The value of a header's line if it has this name, which is in lower case.
std::optional<std::string_view> header_value(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':') return std::nullopt;
  const auto equal = [](char lower, char any) { return std::tolower(static_cast<unsigned char>(any)) == lower; };
  if (!std::equal(name.begin(), name.end(), line.begin(), equal)) return std::nullopt;
  line.remove_prefix(name.size() + 1);
  constexpr std::string_view kSpaces = " \t\r\n";
  line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
  return line.substr(0, line.find_last_not_of(kSpaces) + 1);
}

/// Why a request that ended with `code` has no whole answer; empty if it has one.
std::string error_of(CURL* handle, CURLcode code) {
  long number = 0;
  curl_easy_getinfo(handle, CURLINFO_OS_ERRNO, &number);
  const char* const system = number != 0 ? std::strerror(static_cast<int>(number)) : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OK: return "";
    case CURLE_COULDNT_CONNECT: return fmt::format("cannot connect: {}", system);
    case CURLE_COULDNT_RESOLVE_HOST: return "cannot connect: the host is unknown";
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE: return std::string(kCut);
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: return fmt::format("the connection broke: {}", system);
    default: return curl_easy_strerror(code);
  }
}

}  // namespace

struct HttpStreams::Impl {
  struct Slot {
    Impl* impl = nullptr;
    std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle{nullptr, curl_easy_cleanup};
    std::string body;
    HttpHead head;
    bool is_running = false;
    bool is_cancelled = false;  // inside a callback of libcurl, which must not be removed from there
  };

  std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi{curl_multi_init(), curl_multi_cleanup};
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers{nullptr, curl_slist_free_all};
  FileDescriptor epoll{::epoll_create1(EPOLL_CLOEXEC)};
  std::optional<Clock::time_point> timer;  // of libcurl
  std::vector<Slot> slots;                 // before the multi handle's end, which must not know them any more
  const std::function<void(const News&)>* on_news = nullptr;
  Clock::time_point at;
  bool is_inside = false;  // a call of libcurl
  int n_cancelled = 0;

  ~Impl() {
    for (const Slot& slot : slots)
      if (slot.is_running) curl_multi_remove_handle(multi.get(), slot.handle.get());
    slots.clear();
  }

  void add_header(const char* line) {
    curl_slist* const longer = curl_slist_append(headers.get(), line);
    static_cast<void>(headers.release());
    headers.reset(longer);
  }

  void prepare(Slot& slot) {
    slot.impl = this;
    slot.handle.reset(curl_easy_init());
    CURL* const handle = slot.handle.get();
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &slot);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &slot);
    curl_easy_setopt(handle, CURLOPT_PRIVATE, &slot);
  }

  static std::size_t take_header(char* bytes, std::size_t size, std::size_t count, void* user) {
    HttpHead& head = static_cast<Slot*>(user)->head;
    const std::string_view line(bytes, size * count);
    if (line.starts_with("HTTP/")) {
      head = {};
      head.status_line = line.substr(0, line.find_last_not_of("\r\n") + 1);
      const std::size_t space = std::min(line.find(' '), line.size() - 1);
      std::from_chars(line.data() + space + 1, line.data() + line.size(), head.status);
    } else if (const auto type = header_value(line, "content-type")) {
      head.content_type = *type;
    } else if (const auto coding = header_value(line, "transfer-encoding")) {
      head.is_chunked = *coding == "chunked";
    }
    return size * count;
  }

  static std::size_t take_body(char* bytes, std::size_t size, std::size_t count, void* user) {
    Slot& slot = *static_cast<Slot*>(user);
    if (!slot.is_cancelled) slot.impl->report(slot, {bytes, size * count}, false, "");
    return slot.is_cancelled ? 0 : size * count;  // 0 ends the transfer
  }

  static int watch(CURL*, curl_socket_t socket, int what, void* user, void* is_known) {
    Impl& impl = *static_cast<Impl*>(user);
    if (what == CURL_POLL_REMOVE) {
      ::epoll_ctl(impl.epoll.number(), EPOLL_CTL_DEL, socket, nullptr);
      return 0;
    }
    epoll_event event{};
    event.data.fd = socket;
    if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
    if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
    ::epoll_ctl(impl.epoll.number(), is_known != nullptr ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event);
    curl_multi_assign(impl.multi.get(), socket, &impl);
    return 0;
  }

  static int set_timer(CURLM*, long ms, void* user) {
    auto& timer = static_cast<Impl*>(user)->timer;
    timer = ms < 0 ? std::nullopt : std::optional(Clock::now() + std::chrono::milliseconds(ms));
    return 0;
  }

  void report(const Slot& slot, std::string_view bytes, bool is_end, std::string error) const {
    (*on_news)({static_cast<std::size_t>(&slot - slots.data()), slot.head, bytes, is_end, std::move(error), at});
  }

  void act(curl_socket_t socket, int events) {
    int n_running = 0;
    is_inside = true;
    curl_multi_socket_action(multi.get(), socket, events, &n_running);
    is_inside = false;
  }

  void remove(Slot& slot) {
    curl_multi_remove_handle(multi.get(), slot.handle.get());
    slot.is_running = false;
    n_cancelled -= std::exchange(slot.is_cancelled, false) ? 1 : 0;
  }

  /// Reports requests that have ended, and removes them.
  void collect() {
    int n_left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi.get(), &n_left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;  // the message ends with the handle
      Slot* slot = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
      std::string error = error_of(slot->handle.get(), code);
      const bool was_cancelled = slot->is_cancelled;
      remove(*slot);
      if (!was_cancelled) report(*slot, {}, true, std::move(error));
    }
    for (std::size_t i = 0; n_cancelled > 0 && i < slots.size(); ++i)
      if (slots[i].is_cancelled) remove(slots[i]);  // in the news of another slot
  }

  int wait_for_events(std::span<epoll_event> events, Clock::time_point until) {
    const int n = ::epoll_wait(epoll.number(), events.data(), static_cast<int>(events.size()), 0);
    const auto left = until - Clock::now();
    if (n != 0 || left <= Clock::duration::zero()) return n;
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t ns = std::min<std::int64_t>(std::chrono::nanoseconds(left).count(), 3600 * kSecond);
    const timespec timeout{ns / kSecond, ns % kSecond};
    pollfd ready{epoll.number(), POLLIN, 0};
    ::ppoll(&ready, 1, &timeout, nullptr);  // epoll_wait counts in whole milliseconds, which is too coarse for arrivals
    return ::epoll_wait(epoll.number(), events.data(), static_cast<int>(events.size()), 0);
  }

  void wait(Clock::time_point until) {
    std::array<epoll_event, 256> events{};
    const int n = wait_for_events(events, std::min(until, timer.value_or(until)));
    at = Clock::now();
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      int what = (event.events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0;
      if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
      if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
      act(event.data.fd, what);
    }
    if (timer && *timer <= at) {
      timer.reset();
      act(CURL_SOCKET_TIMEOUT, 0);
    }
    collect();
  }
};

HttpStreams::HttpStreams(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpStreams::~HttpStreams() = default;
HttpStreams::HttpStreams(HttpStreams&&) noexcept = default;
HttpStreams& HttpStreams::operator=(HttpStreams&&) noexcept = default;

Result<HttpStreams> HttpStreams::create(std::size_t n_slots, std::span<const std::string> headers) {
  if (const std::size_t n_files = allow_open_files(n_slots + kOtherFiles); n_files < n_slots + kOtherFiles)
    return fail(ErrorCode::invalid_request, fmt::format("{} clients need {} open files; this process may have {} (ulimit -n)",
                                                        n_slots, n_slots + kOtherFiles, n_files));
  auto impl = std::make_unique<Impl>();
  if (impl->epoll.number() < 0)
    return fail(ErrorCode::io, fmt::format("cannot wait for connections: {}", std::strerror(errno)));
  for (const std::string& line : headers) impl->add_header(line.c_str());
  impl->add_header("Content-Type: application/json");
  impl->add_header("Expect:");  // no round trip before a long body
  CURLM* const multi = impl->multi.get();
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, Impl::watch);
  curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, impl.get());
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, Impl::set_timer);
  curl_multi_setopt(multi, CURLMOPT_TIMERDATA, impl.get());
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(std::max<std::size_t>(n_slots, 1)));
  impl->slots = std::vector<Impl::Slot>(n_slots);
  return HttpStreams(std::move(impl));
}

std::size_t HttpStreams::size() const { return impl_->slots.size(); }

void HttpStreams::send(std::size_t index, const std::string& url, std::string body) {
  Impl::Slot& slot = impl_->slots[index];
  check(!slot.is_running && !impl_->is_inside, "a request is sent in a free slot, between two waits");
  if (slot.handle == nullptr) impl_->prepare(slot);  // a load may have more slots than it ever has requests under way
  slot.body = std::move(body);
  slot.head = {};
  slot.is_running = true;
  CURL* const handle = slot.handle.get();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  if (slot.body.empty()) {
    curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L);
  } else {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, slot.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(slot.body.size()));
  }
  curl_multi_add_handle(impl_->multi.get(), handle);
}

void HttpStreams::cancel(std::size_t index) {
  Impl::Slot& slot = impl_->slots[index];
  if (!slot.is_running) return;
  if (!impl_->is_inside) return impl_->remove(slot);
  impl_->n_cancelled += std::exchange(slot.is_cancelled, true) ? 0 : 1;
}

void HttpStreams::wait(Clock::time_point until, const std::function<void(const News&)>& on_news) {
  impl_->on_news = &on_news;
  impl_->wait(until);
}

void ServerSentEvents::push(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  for (const char byte : bytes) {
    if (byte != '\n') {
      line_ += byte;
      continue;
    }
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.starts_with("data:")) on_data(std::string_view(line_).substr(line_.starts_with("data: ") ? 6 : 5));
    line_.clear();
  }
}

}  // namespace baton
