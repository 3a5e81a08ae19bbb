/// What a Hugging Face endpoint says about a model and its files.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/result.h"
#include "io/http_client.h"

namespace baton::hub {

/// A revision of a model.
struct RemoteModel {
  std::string commit;           ///< 40 hexadecimal digits
  std::set<std::string> files;  ///< their paths as the endpoint names them: not yet fit for a path here
};

/// The reply to /api/models/MODEL/revision/REVISION, a JSON object with `sha` and `siblings`. Errors name `url`:
/// not_found and unavailable (by the status), invalid_data.
Result<RemoteModel> remote_model_of(const std::string& url, const HttpReply& reply);

/// What the endpoint announces about one file.
struct RemoteFile {
  std::string url;
  std::string etag;  ///< a safe name
  std::uint64_t size_bytes = 0;
};

/// Whether a redirect to another server says itself what the file is: large files are stored elsewhere, and their addresses there
/// are signed for GET.
bool names_linked_file(const HttpReply& reply);

/// The reply to HEAD of a file, from the headers that large files have on the first server, else from the plain ones.
/// Errors name `url`: not_found and unavailable (by the status), invalid_data.
Result<RemoteFile> remote_file_of(std::string url, const HttpReply& reply);

}  // namespace baton::hub
