/// The folder of `--prefix-folder`: each of its files is a registered prefix, as long as the server runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/folder_watch.h"
#include "server/prefixes/prefixes.h"
#include "server/served/served_model.h"

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
/// A thread looks at the files, and the one that registers prefixes does what it found, so that a changed file cancels
/// the computation of its old contents. Before `start`, one thread calls `look`, `apply_next` and `register_all`.
class PrefixFolder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSettleTime{200};
  static constexpr std::chrono::milliseconds kGoneTime{500};  ///< missing this long, a file is gone
  static constexpr std::chrono::milliseconds kLongestWrite{
      10'000};  ///< a file that some program keeps open for writing is read after this time without a change
  static constexpr std::chrono::milliseconds kLookTime{2'000};  ///< between looks without change events

  /// The arguments must outlive it. `apply_next` calls `on_registered` after a prefix was added.
  PrefixFolder(std::filesystem::path folder, OutwardLinks links, const ServedModel& model, Engine& engine, Prefixes& prefixes,
               std::function<void()> on_registered);
  ~PrefixFolder();

  /// Registers all files of the folder, with log lines about the progress. Errors: the folder cannot be read.
  Result<void> register_all();
  /// Looks at the files as of `now`. Returns true if one has changed too recently to be read.
  bool look(Clock::time_point now);
  /// Adds or removes one prefix, as the last look found; false if there is nothing to do.
  bool apply_next();

  /// Has another thread run a task.
  using Post = std::function<void(std::function<void()>)>;
  /// From now on changes are looked for, and `post` gets what applies them.
  void start(Post post);
  /// Ends the looks; what has been posted does nothing any more. Idempotent.
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
  /// What a name is to stand for, until it does.
  struct Wish {
    enum class State { waits, is_applied, found_no_room, is_refused };
    std::optional<PrefixDefinition> definition;  // none: no prefix
    State state = State::waits;
    std::int64_t n_removed = 0;  // Prefixes::n_removed before it was applied
    std::string refusal = {};    // why the contents of its file are not registered
  };

  void see(const FolderFile& found, Clock::time_point now, bool is_first_look);
  void read(const std::string& file_name, File& file);
  Result<std::filesystem::path> target_of(const std::filesystem::path& path) const;
  std::string served_version(const std::string& name) const;
  void refuse(const std::string& file_name, File& file, std::string reason);
  void forget(Files::iterator gone, Clock::time_point now);
  void wish(const std::string& name, std::optional<PrefixDefinition> definition);
  void apply(const std::string& name, const std::optional<PrefixDefinition>& definition);
  void keep_result(const std::string& name, const Result<void>& applied) BATON_REQUIRES(mutex_);
  void post_next() BATON_REQUIRES(mutex_);
  void apply_posted();
  void retry_where_room_was_made();
  void count_refusals() BATON_REQUIRES(mutex_);
  void run_looks(MemoryReserve& reserve);

  const std::filesystem::path folder_;
  const OutwardLinks links_;
  const ServedModel& model_;
  Engine& engine_;
  Prefixes& prefixes_;
  const std::function<void()> on_registered_;

  // Used by the thread that looks.
  FolderWatch watch_;
  Files files_;                                // by file name
  std::map<std::string, std::string> owners_;  // file name by prefix name
  std::string folder_refusal_;                 // why the folder cannot be read
  bool has_looked_ = false;

  Mutex mutex_;  // locked before those of the prefixes, of their store and of the engine
  std::map<std::string, Wish> wishes_ BATON_GUARDED_BY(mutex_);  // by name
  std::int64_t n_refused_files_ BATON_GUARDED_BY(mutex_) = 0;
  bool is_posted_ BATON_GUARDED_BY(mutex_) = false;  // a task that applies the next wish
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;

  Post post_;  // empty before start
  std::thread looks_;
};

}  // namespace baton
