/// Finds the prefixes to register, and registers them.
#include "server/prefixes/prefix_folder.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/sha.h>

#include "core/attempt.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "core/one_line.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kLookAgain{50};  // while a file is changing
/// Of the thread that looks, for destructors of JSON values while memory is short.
constexpr std::size_t kFolderReserveBytes = std::size_t{512} << 10;
constexpr std::chrono::milliseconds kLongestStart{15'000};  // changing files delay the start at most this long

/// Whether a file is a prefix file, by its name.
bool is_candidate(std::string_view name) {
  constexpr std::string_view kPassedOver[] = {".swp", ".swo", ".swx", ".tmp", ".bak", ".part"};
  if (name.starts_with('.') || name.starts_with('#') || name.ends_with('~') || name.find('.') == std::string_view::npos)
    return false;
  return std::ranges::none_of(kPassedOver, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// The output of `sha256sum FILE | cut -c 1-12`.
std::string version_of(std::string_view bytes) {
  constexpr std::ptrdiff_t kShownBytes = 6;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + kShownBytes, ""));
}

std::string stem_of(const std::string& file_name) { return std::filesystem::path(file_name).stem().string(); }

}  // namespace

Result<void> PrefixFolder::register_all() {
  const auto deadline = Clock::now() + kLongestStart;
  bool is_unsettled = look(Clock::now());
  if (!folder_refusal_.empty()) return fail(ErrorCode::invalid_request, "--prefix-folder: " + folder_refusal_);
  log::info("event=prefix_folder_opened folder={} files={} changes={}", log_value(folder_.string()), files_.size(),
            watch_.is_told() ? "told" : "looked_for");
  std::size_t n_applied = 0;
  while (true) {
    while (prefixes_.run_next()) log::info("event=prefix_folder_progress done={} of={}", ++n_applied, files_.size());
    if (!is_unsettled || Clock::now() >= deadline) break;
    watch_.wait(kLookAgain);
    is_unsettled = look(Clock::now());
  }
  const PrefixCounts counts = prefixes_.counts();
  log::info("event=prefix_folder_ready prefixes={} refused={}",
            counts.by_source[static_cast<std::size_t>(PrefixSource::folder)], counts.n_refused_files);
  return {};
}

bool PrefixFolder::look(Clock::time_point now) {
  prefixes_.retry_files();
  const auto listed = list_files(folder_);
  if (!listed) {
    // The registered prefixes keep serving: a volume may be mounted again, which does not mean that all prefixes shall
    // go.
    if (folder_refusal_ != listed.error().message)
      log::warning("event=prefix_folder_refused folder={} reason={}", log_value(folder_.string()),
                   log_value(listed.error().message));
    folder_refusal_ = listed.error().message;
    return false;
  }
  folder_refusal_.clear();
  for (auto& [name, file] : files_)
    if (!file.gone_since) file.gone_since = now;
  for (const FolderFile& found : *listed)
    if (is_candidate(found.name)) see(found, now, !has_looked_);
  has_looked_ = true;
  bool is_unsettled = false;
  for (auto at = files_.begin(); at != files_.end();) {
    const auto current = at++;
    auto& [name, file] = *current;
    if (file.gone_since) {
      if (now - *file.gone_since >= kGoneTime)
        forget(current, now);
      else
        is_unsettled = true;
    } else if (!file.is_settled) {
      const auto still = now - file.changed_at;
      if (still < kSettleTime || (watch_.is_being_written(name) && still < kLongestWrite)) {
        is_unsettled = true;
      } else {
        read(name, file);
        file.is_settled = true;
      }
    }
  }
  prefixes_.set_n_refused_files(std::ranges::count_if(files_, [](const auto& entry) { return !entry.second.refusal.empty(); }));
  return is_unsettled;
}

/// A file is there.
void PrefixFolder::see(const FolderFile& found, Clock::time_point now, bool is_first_look) {
  const auto [at, is_new] = files_.try_emplace(found.name);
  File& file = at->second;
  file.gone_since.reset();
  if (!is_new && file.stamp == found.stamp) return;
  file.stamp = found.stamp;
  file.changed_at = now;
  file.is_settled = false;
  if (!is_first_look) return;
  // Files that did not change before the server started need no waiting time.
  const std::chrono::nanoseconds age =
      std::chrono::system_clock::now().time_since_epoch() -
      std::chrono::nanoseconds(std::max(found.stamp.modified_ns, found.stamp.status_changed_ns));
  if (age > 5 * kSettleTime) file.changed_at = now - kSettleTime;
}

void PrefixFolder::read(const std::string& file_name, File& file) {
  const std::filesystem::path path = folder_ / file_name;
  const std::string name = stem_of(file_name);
  if (const auto owner = owner_of(name); owner != files_.end() && owner->first != file_name)
    return refuse(file_name, file, fmt::format("the prefix {} is the file {}", name, owner->first));
  if (path.extension() != ".txt" && path.extension() != ".json")
    return refuse(file_name, file, "it ends neither in .txt nor in .json");
  if (static_cast<std::size_t>(file.stamp.size_bytes) > kMaxPrefixFileBytes)
    return refuse(file_name, file,
                  fmt::format("it has {} bytes; a prefix's file may have {}", file.stamp.size_bytes, kMaxPrefixFileBytes));
  const auto target = target_of(path);
  if (!target) return refuse(file_name, file, target.error().message);
  auto bytes = read_prefix_bytes(*target);
  if (!bytes) return refuse(file_name, file, std::move(bytes.error().message));
  std::string version = version_of(*bytes);
  if (version == file.version) {  // the same contents with another date, or written again
    file.refusal.clear();
    return;
  }
  auto definition = parse_prefix_file(name, path, std::move(*bytes));
  if (!definition) return refuse(file_name, file, std::move(definition.error().message));
  file.refusal.clear();
  definition->source = PrefixSource::folder;
  if (definition->version.empty()) definition->version = version;
  prefixes_.want_file(std::move(*definition));
  file.version = std::move(version);
}

/// The file to read: links are resolved first and what they lead to is read, so that one that changes meanwhile is not
/// followed. Errors: it lies outside of the folder, or cannot be reached.
Result<std::filesystem::path> PrefixFolder::target_of(const std::filesystem::path& path) const {
  if (links_ == OutwardLinks::followed) return path;
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::canonical(folder_, failed);
  const std::filesystem::path target = failed ? path : std::filesystem::canonical(path, failed);
  if (failed) return fail(ErrorCode::io, fmt::format("cannot read {}: {}", path.string(), failed.message()));
  if (std::ranges::mismatch(folder, target).in1 == folder.end()) return target;
  return fail(ErrorCode::invalid_request,
              "it is a link that leads out of the folder; --allow-prefix-links has such links followed");
}

/// The file whose contents a prefix has, or is to have. Names of files with its name are neighbours.
PrefixFolder::Files::iterator PrefixFolder::owner_of(const std::string& name) {
  const std::string beginning = name + ".";
  auto at = files_.lower_bound(beginning);
  for (; at != files_.end() && at->first.starts_with(beginning); ++at)
    if (stem_of(at->first) == name && !at->second.version.empty()) return at;
  return files_.end();
}

void PrefixFolder::refuse(const std::string& file_name, File& file, std::string reason) {
  if (file.refusal == reason) return;
  log::warning("event=prefix_file_refused file={} reason={} serving={}", log_value((folder_ / file_name).string()),
               log_value(reason), prefixes_.served_file_version(stem_of(file_name)));
  file.refusal = std::move(reason);
}

void PrefixFolder::forget(Files::iterator gone, Clock::time_point now) {
  const std::string name = stem_of(gone->first);
  if (!gone->second.version.empty()) {
    // Another file with this prefix name may be registered now.
    for (auto& [other, file] : files_) {
      if (other == gone->first || stem_of(other) != name) continue;
      file.is_settled = false;
      file.changed_at = now;
    }
    // Not found: it has expired, or was never registered.
    (void)prefixes_.remove(name, PrefixSource::folder);
  }
  files_.erase(gone);
}

void PrefixFolder::start() {
  looks_ = std::thread(thread_body("prefix-look", kFolderReserveBytes, [this](MemoryReserve& reserve) { run_looks(reserve); }));
}

void PrefixFolder::run_looks(MemoryReserve& reserve) {
  while (true) {
    reserve.restore();
    bool is_unsettled = false;
    if (!attempt([&] { is_unsettled = look(Clock::now()); }))
      log::warning("event=out_of_memory effect=\"changes in the folder of prefixes are found later\"");
    if (is_stopping_) return;
    watch_.wait(is_unsettled ? kLookAgain : kLookTime);
  }
}

void PrefixFolder::stop() {
  if (!looks_.joinable()) return;
  is_stopping_ = true;
  watch_.wake();
  looks_.join();
}

}  // namespace baton
