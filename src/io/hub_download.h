/// Downloads the snapshot of one commit into the Hugging Face cache.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/result.h"
#include "io/hub.h"

namespace baton::hub {

/// Asks the endpoint which commit `revision` stands for, and downloads the files of `model` that Baton reads and the
/// cache does not have. Interrupted downloads continue where they stopped. Each file is compared with its checksum. A
/// process that wants a file that another one downloads waits for it. The revision is noted last. Returns the
/// snapshot's folder. Errors: not_found, unavailable, invalid_data, too_large (the disk), io.
Result<std::filesystem::path> download(std::string_view model, std::string_view revision, const HubOptions& options,
                                       const HubProgress& progress);

}  // namespace baton::hub
