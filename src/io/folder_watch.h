/// Lists a folder and waits for changes of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace baton {

/// What identifies a version of a file. For a symbolic link: the file it leads to.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;        ///< since 1970, as are those of status
  std::int64_t status_changed_ns = 0;  ///< of permissions, names and contents
  bool operator==(const FileStamp&) const = default;
};

struct FolderFile {
  std::string name;
  FileStamp stamp;
};

/// The files of a folder by name, without subfolders and broken links. Errors: not_found, io.
Result<std::vector<FolderFile>> list_files(const std::filesystem::path& folder);

/// Waits for changes of a folder's contents, by inotify. Where inotify is not available or does not report a change
/// (after a link, or made by another machine), a wait ends by its timeout, and the caller must look at the folder.
///
/// The folder may be replaced, disappear and come back, or be a link that changes its target. Thread: one, except
/// `wake`.
class FolderWatch {
 public:
  explicit FolderWatch(std::filesystem::path folder);

  /// Waits until something may have changed, `timeout` has passed or `wake` is called.
  void wait(std::chrono::milliseconds timeout);
  /// Ends the current wait, or the next one. Thread: any.
  void wake();
  /// Whether some program has written to the file of this name and not closed it yet, as far as the last wait
  /// reported.
  bool is_being_written(const std::string& name) const { return being_written_.contains(name); }
  /// Whether inotify reports changes.
  bool is_told() const { return watch_ >= 0; }

 private:
  bool watch_folder();
  void take_events();
  void take(std::uint32_t what, const std::string& name);

  std::filesystem::path folder_;
  FileDescriptor events_;  // inotify's
  FileDescriptor wakes_;   // an eventfd
  int watch_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;  // of the folder that is watched
  std::set<std::string> being_written_;
};

}  // namespace baton
