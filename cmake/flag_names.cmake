# Writes FILE, the header <baton_flag_names.h>: the names of all flags that the tables of FLAG_FILES have, of whichever program.
# Run when one of these has changed (cmake -DFLAG_FILES=a.cpp|b.cpp -DFILE=... -P).
string(REPLACE "|" ";" files "${FLAG_FILES}")
set(names "")
foreach(file IN LISTS files)
  file(READ ${file} source)
  # "MODEL,--model", "-q,--quantization", "--x,!--no-x"
  string(REGEX MATCHALL "\"[A-Za-z,!-]*--[a-z0-9,!-]+\"" rows "${source}")
  foreach(row IN LISTS rows)
    string(REGEX MATCHALL "--[a-z0-9-]+" flags "${row}")
    list(APPEND names ${flags})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(LENGTH names n_names)
if(n_names EQUAL 0)
  message(FATAL_ERROR "no flags in ${files}")
endif()
list(TRANSFORM names REPLACE "^--(.*)$" "    \"\\1\",\n")
string(REPLACE ";" "" rows "${names}")
file(WRITE ${FILE} "/// The names of all flags of `baton` and `baton-bench`, without dashes; written by cmake/flag_names.cmake.
#pragma once

#include <array>
#include <string_view>

namespace baton {

inline constexpr std::array<std::string_view, ${n_names}> kFlagNames = {
${rows}};

}  // namespace baton
")
