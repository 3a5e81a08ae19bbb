/// The folder of `--prefix-folder`: each of its files is a prefix, now and as long as the server runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "core/result.h"
#include "engine/engine.h"
#include "io/folder_watch.h"
#include "server/prefixes.h"
#include "server/served_model.h"

namespace baton {

/// Keeps the prefixes of source `folder` what the files are: NAME.txt and NAME.json (see parse_prefix_file). A file that
/// appears is registered, other contents replace those before, a file that goes takes its prefix along. A file is read when it
/// has been left alone for kSettleTime and nobody is still writing to it. One that cannot be read or registered gets one log
/// line, and what was served under its name goes on; where there was no room, or the name was taken, it is tried again when a
/// prefix has gone. Folders, hidden files and what editors leave (~, .swp, .tmp, .bak) are passed over.
///
/// Files are looked at by one thread and filled by another, so that a change ends the fill of what it changes. `look`,
/// `apply_next` and `fill_all` belong to one thread before start.
class PrefixFolder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSettleTime{200};
  static constexpr std::chrono::milliseconds kGoneTime{500};  ///< editors put a file's new contents in its place meanwhile
  static constexpr std::chrono::milliseconds kLongestWrite{10'000};  ///< without a change; then the file is read all the same
  static constexpr std::chrono::milliseconds kLookTime{2'000};       ///< between looks where nothing tells of changes

  /// All must outlive it. `on_registered` is called after a prefix was added, by the thread that fills.
  PrefixFolder(std::filesystem::path folder, const ServedModel& model, Engine& engine, Prefixes& prefixes,
               std::function<void()> on_registered);
  ~PrefixFolder();

  /// Registers what is there, with log lines of the progress. Errors: the folder cannot be read.
  Result<void> fill_all();
  /// Looks at the files as of `now`: true where one is still to settle.
  bool look(Clock::time_point now);
  /// Adds or removes one prefix that a look found to be; false if there is none.
  bool apply_next();

  void start();
  /// Gives up what is being filled and ends the threads. Idempotent.
  void stop();

 private:
  struct File {
    FileStamp stamp;
    Clock::time_point changed_at;
    bool is_settled = false;  // it was read since
    std::optional<Clock::time_point> gone_since = {};
    std::string version = {};  // of the contents that were last good, by their hash
    std::string refusal = {};  // why the contents it has are not served
  };
  using Files = std::map<std::string, File>;
  /// What is to be under a name; no definition: nothing.
  struct Wish {
    std::optional<PrefixDefinition> definition;
    std::int64_t n_removed = 0;  // see Prefixes::n_removed, when there was no room for it
  };

  void see(const FolderFile& found, Clock::time_point now, bool is_first_look);
  void read(const std::string& file_name, File& file);
  std::string served_version(const std::string& name) const;
  void refuse(const std::string& file_name, File& file, std::string reason);
  void forget(Files::iterator gone, Clock::time_point now);
  void wish(const std::string& name, std::optional<PrefixDefinition> definition);
  void apply(const std::string& name, Wish wish);
  void retry_where_room_was_made();
  void count_refusals();
  void run_looks();
  void run_fills();

  const std::filesystem::path folder_;
  const ServedModel& model_;
  Engine& engine_;
  Prefixes& prefixes_;
  const std::function<void()> on_registered_;

  // Of the thread that looks.
  FolderWatch watch_;
  Files files_;                                // by file name
  std::map<std::string, std::string> owners_;  // file name by prefix name
  std::string folder_refusal_;                 // why the folder cannot be read
  bool has_looked_ = false;

  std::mutex mutex_;
  std::condition_variable wished_;
  // Guarded by mutex_.
  std::map<std::string, Wish> wishes_;
  std::map<std::string, Wish> without_room_;
  std::map<std::string, std::string> unfilled_;  // why a name has not the contents its file has
  std::int64_t n_refused_files_ = 0;
  bool is_stopping_ = false;

  std::thread looks_;
  std::thread fills_;
};

}  // namespace baton
