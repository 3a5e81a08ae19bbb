/// The folder of `--prefix-folder`: each of its files is a registered prefix, as long as the server runs.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/limits/memory_reserve.h"
#include "core/result.h"
#include "io/folder_watch.h"
#include "server/prefixes/prefixes.h"

namespace baton {

/// Whether a link in the folder may lead to a file outside of it. A user who may write to the folder could otherwise
/// serve, and so read, any file that the server can read.
enum class OutwardLinks : bool { refused, followed };

/// Keeps the prefixes of source `folder` equal to the files NAME.txt and NAME.json (see parse_prefix_file). A new file
/// is registered, changed contents replace the old ones, and a deleted file removes its prefix. A file is read when it
/// has not changed for kSettleTime and no program is writing to it. A file that cannot be read or registered gets one
/// log line, and the last good contents keep serving. If there was no room, or the name was taken, it is tried again
/// when a prefix has gone. Ignored: folders, hidden files and temporary files of editors (~, .swp, .tmp, .bak).
///
/// A thread looks at the files, and the prefixes' own thread registers their contents, so that a changed file cancels the
/// computation of its old contents. Before `start`, one thread calls `look` and `register_all`.
class PrefixFolder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSettleTime{200};
  static constexpr std::chrono::milliseconds kGoneTime{500};  ///< missing this long, a file is gone
  static constexpr std::chrono::milliseconds kLongestWrite{
      10'000};  ///< a file that some program keeps open for writing is read after this time without a change
  static constexpr std::chrono::milliseconds kLookTime{2'000};  ///< between looks without change events

  /// `prefixes` must outlive it.
  PrefixFolder(std::filesystem::path folder, OutwardLinks links, Prefixes& prefixes)
      : folder_(std::move(folder)), links_(links), prefixes_(prefixes), watch_(folder_) {}
  ~PrefixFolder() { stop(); }

  /// Registers all files of the folder, with log lines about the progress. Errors: the folder cannot be read.
  Result<void> register_all();
  /// Looks at the files as of `now`. Returns true if one has changed too recently to be read.
  bool look(Clock::time_point now);
  /// From now on a thread looks for changes.
  void start();
  /// Ends it. Idempotent.
  void stop();

 private:
  struct File {
    FileStamp stamp;
    Clock::time_point changed_at;
    bool is_settled = false;  // it was read since its last change
    std::optional<Clock::time_point> gone_since = {};
    std::string version = {};  // of the last good contents, by their hash
    std::string refusal = {};  // why its contents are not served
  };
  using Files = std::map<std::string, File>;
  void see(const FolderFile& found, Clock::time_point now, bool is_first_look);
  void read(const std::string& file_name, File& file);
  Result<std::filesystem::path> target_of(const std::filesystem::path& path) const;
  Files::iterator owner_of(const std::string& name);
  void refuse(const std::string& file_name, File& file, std::string reason);
  void forget(Files::iterator gone, Clock::time_point now);
  void run_looks(MemoryReserve& reserve);

  const std::filesystem::path folder_;
  const OutwardLinks links_;
  Prefixes& prefixes_;

  // Used by the thread that looks.
  FolderWatch watch_;
  Files files_;                 // by file name
  std::string folder_refusal_;  // why the folder cannot be read
  bool has_looked_ = false;

  std::atomic<bool> is_stopping_ = false;
  std::thread looks_;
};

}  // namespace baton
