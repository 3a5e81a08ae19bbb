/// The files of the page at `/`, and the documents that it shows, which are part of the program.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct WebFile {
  std::string_view path;  ///< of its URL
  std::string_view type;  ///< of its contents (MIME)
  std::string_view body;
};

std::span<const WebFile> web_files();

}  // namespace baton
