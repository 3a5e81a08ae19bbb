#include "support/source_folder.h"

namespace baton::test {

std::filesystem::path source_folder() { return BATON_SOURCE_DIR; }

}  // namespace baton::test
