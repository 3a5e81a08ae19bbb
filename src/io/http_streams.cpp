/// Many HTTP requests at once over libcurl's multi interface.
#include "io/http_streams.h"

#include <memory>

#include <curl/curl.h>

namespace baton {
namespace {

struct StreamTransfer {
  std::size_t index = 0;
  const HttpPiece* on_piece = nullptr;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle{nullptr, curl_easy_cleanup};
};

std::size_t take_piece(char* bytes, std::size_t size, std::size_t count, void* user) {
  const auto* transfer = static_cast<const StreamTransfer*>(user);
  (*transfer->on_piece)(transfer->index, {bytes, size * count});
  return size * count;
}

}  // namespace

std::vector<HttpOutcome> http_post_streams(std::span<const HttpPost> posts, double timeout_s, const HttpPiece& on_piece) {
  std::vector<HttpOutcome> outcomes(posts.size());
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi(curl_multi_init(), curl_multi_cleanup);
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
  std::vector<StreamTransfer> transfers(posts.size());
  for (std::size_t i = 0; i < posts.size(); ++i) {
    StreamTransfer& transfer = transfers[i];
    transfer.index = i;
    transfer.on_piece = &on_piece;
    transfer.handle.reset(curl_easy_init());
    CURL* handle = transfer.handle.get();
    curl_easy_setopt(handle, CURLOPT_URL, posts[i].url.c_str());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, posts[i].body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(posts[i].body.size()));
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_s * 1e3));
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_piece);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_PRIVATE, &transfer);
    curl_multi_add_handle(multi.get(), handle);
  }
  for (int n_running = 1; n_running > 0;) {
    if (curl_multi_perform(multi.get(), &n_running) != CURLM_OK) break;
    int n_left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi.get(), &n_left)) {
      if (message->msg != CURLMSG_DONE) continue;
      StreamTransfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      HttpOutcome& outcome = outcomes[transfer->index];
      curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &outcome.status);
      if (message->data.result != CURLE_OK) outcome.error = curl_easy_strerror(message->data.result);
    }
    if (n_running > 0) curl_multi_poll(multi.get(), nullptr, 0, 100, nullptr);
  }
  for (StreamTransfer& transfer : transfers) curl_multi_remove_handle(multi.get(), transfer.handle.get());
  return outcomes;
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
