/// The folder of `--prefix-store`: the keys and values of registered prefixes, kept over restarts.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/file_lock.h"
#include "io/prefix_file.h"
#include "server/prefixes/prefix_definition.h"

namespace baton {

struct PrefixStoreOptions {
  std::filesystem::path folder = {};  ///< empty: prefixes are not stored
  std::uint64_t max_bytes = 0;        ///< of all its files; 0: what the disk holds
};

/// For /metrics.
struct PrefixStoreCounts {
  std::int64_t n_files = 0;  ///< prefixes that a restart would find
  std::int64_t n_bytes = 0;  ///< of these files
  std::int64_t n_loaded = 0;
  std::int64_t n_loaded_bytes = 0;
  double load_seconds = 0;
  std::int64_t n_written = 0;
  std::int64_t n_written_bytes = 0;
  double write_seconds = 0;
  std::int64_t n_failed = 0;   ///< prefixes that could not be stored
  std::int64_t n_refused = 0;  ///< files that were not used: damaged, foreign, of another text
};

/// One file NAME.kvprefix for each prefix (io/prefix_file.h). A file is used only if its header and each part that is
/// read are undamaged, its identity is this server's, and its tokens equal the prefix's. What is refused gets one log
/// line, stays where it is, and is replaced when a prefix of its name is stored.
///
/// One server at a time writes to a folder (the lock in it); others only read, until the lock is free. Thread: any;
/// one at a time stores.
class PrefixStore {
 public:
  /// Makes the folder if it does not exist, and removes what a server that was killed has left half-written. Errors:
  /// the folder cannot be made or listed. If it cannot be written, the log says so, and prefixes are loaded but not
  /// stored.
  static Result<std::unique_ptr<PrefixStore>> open(PrefixStoreOptions options);

  /// Reads the headers of all files, with one log line for each that is refused. Call it once, before the functions
  /// below. `engine` must outlive it; `model` says which configuration and weights it is.
  void scan(Engine& engine, PrefixIdentity model);

  /// A prefix of the API, and the bytes of its file.
  struct Stored {
    PrefixDefinition definition;
    std::uint64_t n_bytes = 0;
  };
  /// The stored prefixes of the API whose lifetime has not ended by `now` (Unix time in seconds). Files of the others are
  /// removed.
  std::vector<Stored> stored(std::int64_t now);

  /// Pins a prefix with its stored keys and values. nullopt if no file fits, or the engine refuses; the caller then
  /// pins it without.
  std::optional<PinInfo> load(const std::string& name, const std::vector<TokenId>& tokens, std::stop_token stop);
  /// Whether the file of a prefix says this of it.
  bool is_stored(const std::string& name, std::string_view metadata) const;

  /// Writes the file of a registered prefix, in place of an older one. Waits until it is on the disk. `is_removed` becomes true
  /// before `remove` is called. Errors, after one log line, and then no file of this name is left: io (the disk is full, the
  /// folder cannot be written), too_large (max_bytes), unavailable (it was removed meanwhile, another server writes to the
  /// folder); those of Engine::export_pin.
  Result<void> store(const std::string& name, std::string metadata, std::span<const TokenId> tokens, PinId pin,
                     const std::atomic<bool>& is_removed);
  /// Removes the file of a prefix. It is gone for good after sync.
  void remove(const std::string& name);
  /// Removes the files of prefixes that neither a flag nor the folder has given since the start.
  void remove_unclaimed();
  void sync() const;

  PrefixStoreCounts counts() const;

 private:
  struct File {
    std::string metadata;
    PrefixSource source = PrefixSource::api;
    std::uint64_t n_bytes = 0;
    bool is_claimed = false;  ///< a prefix of this name was to be loaded or stored
  };

  explicit PrefixStore(PrefixStoreOptions options) : options_(std::move(options)) {}
  std::filesystem::path path_of(std::string_view name) const;
  Result<void> lock_folder() BATON_REQUIRES(mutex_);
  void remove_leftovers();
  Result<File> examine(const std::string& name) const;
  Result<PrefixFileReader> open_for(const std::string& name, const std::vector<TokenId>& tokens) const;
  Result<void> check_bytes(const std::string& name, std::uint64_t n_bytes) const;
  Result<void> write(const PrefixFileHeader& header, PinId pin, const std::atomic<bool>& is_removed);
  void refuse(const std::string& name, std::string_view reason);
  void unlink(const std::string& name) BATON_REQUIRES(mutex_);

  const PrefixStoreOptions options_;
  Engine* engine_ = nullptr;  ///< from scan on, as the identity
  PrefixIdentity identity_;

  mutable Mutex mutex_;
  std::optional<FileLock> lock_ BATON_GUARDED_BY(mutex_);
  std::map<std::string, File, std::less<>> files_ BATON_GUARDED_BY(mutex_);  ///< the ones that may be loaded
  PrefixStoreCounts counts_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
