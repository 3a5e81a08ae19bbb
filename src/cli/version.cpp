/// What `baton --version` says.
#include "cli/version.h"

#include <baton_version.h>
#include <fmt/format.h>

#include "kernels/backend.h"

namespace baton {

std::string version_number() { return std::string(kVersion); }

std::string version_line() { return fmt::format("baton {} (commit {})", kVersion, kCommit); }

std::string version_text() {
  std::string text = version_line() + '\n';
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(name, {});
    if (!backend) {
      text += fmt::format("backend {}: {}\n", name, backend.error().message);
      continue;
    }
    const BackendInfo info = (*backend)->info();
    text += fmt::format("backend {}: {}, {}, {:.1f} GB of memory\n", name, info.device, info.features,
                        static_cast<double>(info.memory_bytes) / 1e9);
  }
  return text;
}

}  // namespace baton
