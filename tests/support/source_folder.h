/// The folder of the sources this program was built from, where tests find goldens, models and shapes.
#pragma once

#include <filesystem>

namespace baton::test {

/// The only place that knows the path: as a macro on every test's command line it kept ccache from sharing objects
/// between clones.
std::filesystem::path source_folder();

}  // namespace baton::test
