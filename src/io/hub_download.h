/// Downloads the snapshot of one commit into the Hugging Face cache, and reads the replies of the hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/http_client.h"
#include "io/hub.h"

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

/// Asks the endpoint which commit `revision` stands for, and downloads the files of `model` that Baton reads and the
/// cache does not have. Interrupted downloads continue where they stopped. Each file is compared with its checksum. A
/// process that wants a file that another one downloads waits for it. The revision is noted last. Returns the
/// snapshot's folder. Errors: not_found, unavailable, invalid_data, too_large (the disk), io.
Result<std::filesystem::path> download(std::string_view model, std::string_view revision, const HubOptions& options,
                                       const HubProgress& progress);

}  // namespace baton::hub
