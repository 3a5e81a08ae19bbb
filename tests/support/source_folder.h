/// The folder of the sources that this program was built from. Tests find goldens, models and shapes there.
#pragma once

#include <filesystem>

namespace baton::test {

/// Only this file knows the path: as a macro on every test's command line it would keep ccache from sharing objects
/// between clones.
std::filesystem::path source_folder();

}  // namespace baton::test
