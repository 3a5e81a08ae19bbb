# Writes FILE, the header <baton_interface.h>: a hash of HEADERS without their comments, which says whether a program and a backend
# module fit each other. Run when one of these has changed (cmake -DHEADERS=a.h|b.h -DFILE=... -P).
string(REPLACE "|" ";" headers "${HEADERS}")
set(hashes "")
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX REPLACE "[ \t]*//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n+" "\n" text "${text}")
  string(SHA256 hash "${text}")
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${FILE} "/// What a program and a backend module must have in common; written by cmake/interface.cmake. Not inline, because then all that is
/// loaded into a process would have one of it.
#pragma once

namespace baton {

constexpr char kBackendInterface[] = \"${hash}\";

}  // namespace baton
")
