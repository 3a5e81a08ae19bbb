/// A hub on loopback with one model, org/tiny, for tests of downloads.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "support/http_server.h"

namespace baton::test {

inline constexpr const char* kHubCommit = "0123456789abcdef0123456789abcdef01234567";

/// The handler of a test server. Revisions main and refs/pr/1 stand for kHubCommit.
class FakeHub {
 public:
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> etags;   ///< of files; otherwise "etag-" and the name
  std::string token;                          ///< required if not empty
  std::size_t cut_after = std::string::npos;  ///< of the first reply with a body of weights
  bool ignores_range = false;

  ServerReply operator()(const ServerRequest& request) {
    if (!token.empty() && request.head.find("Authorization: Bearer " + token + "\r\n") == std::string::npos)
      return {.status = 401};
    if (request.target.starts_with("/api/models/org/tiny/revision/")) {
      if (!request.target.ends_with("/main") && !request.target.ends_with("/refs%2Fpr%2F1")) return {.status = 404};
      std::string list;
      for (const auto& [name, bytes] : files) list += (list.empty() ? "" : ",") + ("{\"rfilename\":\"" + name + "\"}");
      return {.body = std::string("{\"sha\":\"") + kHubCommit + "\",\"siblings\":[" + list + "]}"};
    }
    const std::string prefix = std::string("/org/tiny/resolve/") + kHubCommit + "/";
    const bool is_storage = request.target.starts_with("/storage/");
    if (!request.target.starts_with(prefix) && !is_storage) return {.status = 404};
    const std::string name = request.target.substr(is_storage ? 9 : prefix.size());
    if (!files.contains(name)) return {.status = 404};
    return reply_with(request, name, is_storage);
  }

 private:
  ServerReply reply_with(const ServerRequest& request, const std::string& name, bool is_storage) {
    const std::string& bytes = files[name];
    std::string flat = name;
    for (char& c : flat)
      if (c == '/') c = '-';
    const std::string etag = etags.contains(name) ? etags[name] : "etag-" + flat;
    if (name.ends_with(".safetensors") && !is_storage)  // as for large files: stored on another server
      return {.status = 302,
              .headers = "Location: /storage/" + name + "\r\nX-Linked-Etag: \"" + etag +
                         "\"\r\nX-Linked-Size: " + std::to_string(bytes.size()) + "\r\n"};
    ServerReply reply{.headers = "ETag: W/\"" + etag + "\"\r\n", .body = bytes};
    if (const std::size_t range = request.head.find("Range: bytes="); range != std::string::npos && !ignores_range) {
      reply.status = 206;
      const std::size_t begin = std::stoull(request.head.substr(range + 13));
      reply.headers += "Content-Range: bytes " + std::to_string(begin) + "-" + std::to_string(bytes.size() - 1) + "/" +
                       std::to_string(bytes.size()) + "\r\n";
      reply.body = bytes.substr(begin);
    }
    if (name.ends_with(".safetensors") && request.method == "GET")
      reply.cut_after = std::exchange(cut_after, std::string::npos);
    return reply;
  }
};

}  // namespace baton::test
