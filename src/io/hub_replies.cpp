/// Reads the replies of a Hugging Face endpoint.
#include "io/hub_replies.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/hub_files.h"
#include "io/json.h"

namespace baton::hub {
namespace {

tl::unexpected<Error> bad_status(const std::string& url, long status) {
  const std::string_view hint = status == 401 || status == 403
                                    ? " (private or gated: set HF_TOKEN or log in with `hf auth login`, "
                                      "and accept the model's conditions)"
                                : status == 404 ? " (there is no such model or revision)"
                                                : "";
  return fail(status == 404 ? ErrorCode::not_found : ErrorCode::unavailable,
              fmt::format("{}: HTTP status {}{}", url, status, hint));
}

/// Errors do not name the source yet.
Result<RemoteModel> read_model(const json::Value& info) {
  RemoteModel model;
  BATON_TRY(model.commit, json::get<std::string>(info, "sha"));
  if (!is_commit(model.commit)) return fail(ErrorCode::invalid_data, "'sha' is not a commit");
  BATON_TRY(const auto siblings, json::get<std::vector<json::Value>>(info, "siblings"));
  for (const json::Value& sibling : siblings) {
    BATON_TRY(std::string name, json::get<std::string>(sibling, "rfilename"));
    model.files.insert(std::move(name));
  }
  return model;
}

}  // namespace

Result<RemoteModel> remote_model_of(const std::string& url, const HttpReply& reply) {
  if (reply.status != 200) return bad_status(url, reply.status);
  const auto info = json::parse(reply.body, url);
  if (!info) return fail(ErrorCode::invalid_data, info.error().message);
  auto model = read_model(*info);
  if (!model) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", url, model.error().message));
  return model;
}

bool names_linked_file(const HttpReply& reply) {
  return reply.headers.contains("x-linked-etag") && reply.headers.contains("x-linked-size");
}

Result<RemoteFile> remote_file_of(std::string url, const HttpReply& reply) {
  if (reply.status >= 400) return bad_status(url, reply.status);
  // Large files are redirected to another server; the first one knows their etag and size.
  const auto header = [&](const char* linked, const char* plain) -> std::string {
    for (const char* name : {linked, plain})
      if (const auto found = reply.headers.find(name); found != reply.headers.end()) return found->second;
    return "";
  };
  std::string etag = header("x-linked-etag", "etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  const std::string size_text = header("x-linked-size", "content-length");
  if (!is_safe_name(etag) || size_text.empty() || size_text.size() > 18 ||
      size_text.find_first_not_of("0123456789") != std::string::npos)
    return fail(ErrorCode::invalid_data, fmt::format("{}: the reply names no etag and size", url));
  return RemoteFile{std::move(url), std::move(etag), std::stoull(size_text)};
}

}  // namespace baton::hub
