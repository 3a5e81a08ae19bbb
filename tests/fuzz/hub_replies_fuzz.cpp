/// Fuzzes what a Hugging Face endpoint replies: any bytes give an error, or names that cannot lead out of the cache.
/// The input is the list of a model's files, then the index of its weights and the headers of a file, one "name: value"
/// a line, each after the bytes "\n--\n".
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.h"
#include "io/hub_download.h"
#include "io/hub_files.h"
#include "support/fuzz_parts.h"

namespace {

constexpr const char* kUrl = "http://hub/api";

/// A path that stays below the folder it is joined to: no part of it is empty or begins with a dot.
void check_path(std::string_view path) {
  for (std::string_view rest = path;; rest.remove_prefix(rest.find('/') + 1)) {
    baton::check(!rest.empty() && rest.front() != '/' && rest.front() != '.', "a path that leads outside");
    if (rest.find('/') == std::string_view::npos) break;
  }
  baton::check(std::ranges::count(path, '/') <= 1 && path.find('\0') == std::string_view::npos, "a path of strange parts");
}

baton::HttpReply reply_of(std::string_view headers) {
  baton::HttpReply reply{.status = 200, .headers = {}, .body = {}};
  while (!headers.empty()) {
    const std::size_t end = std::min(headers.find('\n'), headers.size());
    const std::string_view line = headers.substr(0, end);
    if (const std::size_t colon = line.find(": "); colon != std::string_view::npos)
      reply.headers[std::string(line.substr(0, colon))] = line.substr(colon + 2);
    headers.remove_prefix(std::min(end + 1, headers.size()));
  }
  return reply;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const baton::test::FuzzFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  const auto model =
      baton::hub::remote_model_of(kUrl, {.status = 200, .headers = {}, .body = std::string(baton::test::take_part(rest))});
  if (model) {
    baton::check(baton::hub::is_commit(model->commit), "a commit that is none");
    for (const std::string& name : baton::hub::small_files_of(model->files)) {
      baton::check(model->files.contains(name), "a file that the model does not have");
      check_path(name);
    }
  } else {
    baton::check(model.error().message.find(kUrl) != std::string::npos, "an error without its source");
  }
  folder.write("index.json", baton::test::take_part(rest));
  if (const auto shards = baton::hub::shards_of(folder.path() / "index.json")) {
    baton::check(!shards->empty(), "weights without a file");
    for (const std::string& shard : *shards) {
      check_path(shard);
      baton::check(shard.find('/') == std::string::npos, "a shard in another folder");
    }
  }
  if (const auto file = baton::hub::remote_file_of(kUrl, reply_of(rest)))
    baton::check(baton::hub::is_safe_name(file->etag), "an etag that is no name");
  return 0;
}
