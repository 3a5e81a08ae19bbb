/// The output of `baton --version`: version, commit, backends, processor.
#pragma once

#include <string>

namespace baton {

/// "0.1.0".
std::string version_number();
/// "baton 0.1.0 (commit 0123abc)".
std::string version_line();
/// Several lines: version and commit, the backends that can be opened and what they run on.
std::string version_text();

}  // namespace baton
