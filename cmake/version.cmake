# Writes FILE, the header <baton_version.h>: the version, and the commit the sources are at ("unknown" outside of git).
# Run at each build (cmake -DSOURCE=... -DFILE=... -DVERSION=... -P); the file is touched only when it would change.
set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty=+changes --abbrev=10 --match= OUTPUT_VARIABLE described
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND described)
    set(commit "${described}")
  endif()
endif()
set(text "/// The version of this build; written by cmake/version.cmake.
#pragma once

#include <string_view>

namespace baton {

inline constexpr std::string_view kVersion = \"${VERSION}\";
inline constexpr std::string_view kCommit = \"${commit}\";

}  // namespace baton
")
if(EXISTS ${FILE})
  file(READ ${FILE} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${FILE} "${text}")
endif()
