/// Reads, writes and removes the files of stored prefixes.
#include "server/prefixes/prefix_store.h"

#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "core/one_line.h"
#include "engine/cache/block_hash.h"
#include "io/file.h"
#include "server/limits/prefix_name.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

constexpr std::string_view kStoredEnding = ".kvprefix";
constexpr std::size_t kTemporaryEnding = sizeof(".XXXXXX") - 1;  // see PrefixFileWriter

/// Whether a file was being written when its server ended.
bool is_leftover(std::string_view name) {
  return name.size() > kTemporaryEnding && name[name.size() - kTemporaryEnding] == '.' &&
         name.substr(0, name.size() - kTemporaryEnding).ends_with(kStoredEnding);
}

std::vector<std::uint64_t> hashes_of(std::span<const TokenId> tokens, std::int32_t block_len) {
  std::vector<BlockHash> hashes;
  extend_hashes(CacheScope{}, tokens, block_len, hashes);
  std::vector<std::uint64_t> words;
  for (const BlockHash& hash : hashes) words.insert(words.end(), {hash.high, hash.low});
  return words;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What goes wrong with the file, as opposed to the engine.
bool is_about_file(const Error& error) {
  return error.code == ErrorCode::invalid_data || error.code == ErrorCode::io || error.code == ErrorCode::not_found;
}

/// What keys and values depend on, besides tokens: the model, how it computes, and the layout of the cache.
PrefixIdentity prefix_identity(PrefixIdentity model, const Engine& engine) {
  const EngineInfo& info = engine.info();
  const std::string_view dtype = to_string(info.weight_dtype);
  const bool is_dense = info.weight_scheme == dtype;
  model.emplace_back("arithmetic",
                     fmt::format("{} weights{} on {} ({}){}", info.weight_scheme,
                                 is_dense ? "" : fmt::format(" and {} activations", info.activation_scheme), info.backend.name,
                                 info.backend.features, info.batch_invariant ? ", batch-invariant" : ""));
  model.emplace_back("KV layout", engine.prefix_layout().text());
  return model;
}

}  // namespace

Result<std::unique_ptr<PrefixStore>> PrefixStore::open(PrefixStoreOptions options) {
  std::unique_ptr<PrefixStore> store(new PrefixStore(std::move(options)));
  const std::filesystem::path& folder = store->options_.folder;
  std::error_code failed;
  if (std::filesystem::create_directories(folder, failed))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);  // it will hold what people wrote
  if (!failed) std::filesystem::directory_iterator(folder, failed);
  if (failed) return bad("prefix_store", "--prefix-store: cannot use the folder {}: {}", folder.string(), failed.message());
  const MutexLock lock(store->mutex_);
  if (const auto locked = store->lock_folder(); !locked)
    log::warning(
        "event=prefix_store_not_written folder={} reason={} effect=\"stored prefixes are loaded, new ones are not "
        "stored until this changes\"",
        log_value(folder.string()), log_value(locked.error().message));
  return store;
}

std::filesystem::path PrefixStore::path_of(std::string_view name) const {
  return options_.folder / (std::string(name) + std::string(kStoredEnding));
}

/// Becomes the one server that writes, if it is not yet.
Result<void> PrefixStore::lock_folder() {
  if (lock_) return {};
  BATON_TRY(lock_, FileLock::try_acquire(options_.folder / ".lock"));
  if (!lock_)
    return fail(ErrorCode::unavailable, fmt::format("another server writes to the prefix store {}", options_.folder.string()));
  remove_leftovers();
  return {};
}

void PrefixStore::remove_leftovers() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (!is_leftover(name)) continue;
    std::error_code ignored;
    std::filesystem::remove(entry.path(), ignored);
    log::info("event=prefix_store_leftover_removed file={} reason=\"its server ended while it wrote it\"", log_value(name));
  }
}

/// A file whose header is good, and whose identity is this server's.
Result<PrefixStore::File> PrefixStore::examine(const std::string& name) const {
  BATON_TRY(const PrefixFileReader reader, PrefixFileReader::open(path_of(name)));
  const PrefixFileHeader& header = reader.header();
  BATON_TRY_VOID(check_prefix_identity(header, identity_));
  if (header.name != name)
    return fail(ErrorCode::invalid_data, fmt::format("it is the file of the prefix '{}'", header.name.substr(0, 100)));
  BATON_TRY(const PrefixDefinition definition, definition_of(name, header.metadata));
  return File{header.metadata, definition.source, reader.size_bytes()};
}

void PrefixStore::scan(Engine& engine, PrefixIdentity model) {
  engine_ = &engine;
  identity_ = prefix_identity(std::move(model), engine);
  std::error_code failed;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, failed))
    if (entry.path().extension() == kStoredEnding) names.push_back(entry.path().stem().string());
  for (const std::string& name : names) {
    auto file = is_prefix_name(name) ? examine(name)
                                     : fail(ErrorCode::invalid_data, fmt::format("a prefix's name is {}", kPrefixNameRule));
    if (!file) {
      refuse(name, file.error().message);
      continue;
    }
    const MutexLock lock(mutex_);
    files_.insert_or_assign(name, std::move(*file));
  }
  const PrefixStoreCounts counts = this->counts();
  log::info("event=prefix_store_opened folder={} prefixes={} mb={:.1f} refused={}", log_value(options_.folder.string()),
            counts.n_files, static_cast<double>(counts.n_bytes) / 1e6, counts.n_refused);
}

/// A file is not used. It stays, but is forgotten.
void PrefixStore::refuse(const std::string& name, std::string_view reason) {
  log::warning("event=prefix_store_refused file={} reason={}", log_value(path_of(name).string()), log_value(reason));
  const MutexLock lock(mutex_);
  ++counts_.n_refused;
  files_.erase(name);
}

std::vector<PrefixStore::Stored> PrefixStore::stored(std::int64_t now) {
  std::vector<Stored> found;
  const MutexLock lock(mutex_);
  for (auto at = files_.begin(); at != files_.end();) {
    const auto& [name, file] = *at++;
    if (file.source != PrefixSource::api) continue;
    auto definition = definition_of(name, file.metadata);
    check(definition.has_value(), "PrefixStore: a description that was read before cannot be read");
    if (definition->ttl && *definition->created + definition->ttl->count() <= now) {
      log::info("event=prefix_expired name={}", log_value(name));
      unlink(std::string(name));
    } else {
      found.push_back({std::move(*definition), file.n_bytes});
    }
  }
  return found;
}

Result<PrefixFileReader> PrefixStore::open_for(const std::string& name, const std::vector<TokenId>& tokens) const {
  BATON_TRY(PrefixFileReader reader, PrefixFileReader::open(path_of(name)));
  const PrefixFileHeader& header = reader.header();
  BATON_TRY_VOID(check_prefix_identity(header, identity_));
  if (header.tokens != tokens)
    return fail(ErrorCode::invalid_data,
                "its tokens are not the ones that the prefix has now: its text, the tokenizer or the chat "
                "template has changed");
  const PrefixLayout& layout = engine_->prefix_layout();
  const auto n_blocks = static_cast<std::int32_t>(tokens.size()) / layout.block_len;
  if (header.hashes != hashes_of(tokens, layout.block_len) || header.chunk_bytes != layout.piece_bytes(n_blocks))
    return fail(ErrorCode::invalid_data, "its blocks are not those of its tokens");
  return reader;
}

std::optional<PinInfo> PrefixStore::load(const std::string& name, const std::vector<TokenId>& tokens, std::stop_token stop) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const MutexLock lock(mutex_);
    const auto at = files_.find(name);
    if (at == files_.end()) return std::nullopt;
    at->second.is_claimed = true;
  }
  auto loaded = open_for(name, tokens).and_then([&](PrefixFileReader reader) {
    return engine_->pin_from(
        tokens, {}, [&](std::vector<std::byte>& piece) { return reader.read_next(piece); }, std::move(stop));
  });
  if (!loaded) {
    if (is_about_file(loaded.error())) refuse(name, loaded.error().message);
    return std::nullopt;
  }
  const MutexLock lock(mutex_);
  ++counts_.n_loaded;
  if (const auto at = files_.find(name); at != files_.end())
    counts_.n_loaded_bytes += static_cast<std::int64_t>(at->second.n_bytes);
  counts_.load_seconds += seconds_since(begin);
  return std::move(*loaded);
}

bool PrefixStore::is_stored(const std::string& name, std::string_view metadata) const {
  const MutexLock lock(mutex_);
  const auto at = files_.find(name);
  return at != files_.end() && at->second.metadata == metadata;
}

/// Whether so many bytes may be written for a prefix.
Result<void> PrefixStore::check_bytes(const std::string& name, std::uint64_t n_bytes) const {
  if (options_.max_bytes == 0) return {};
  std::uint64_t n_others = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, failed)) {
    std::error_code gone;
    const auto size = entry.file_size(gone);
    if (!gone && entry.path().extension() == kStoredEnding && entry.path() != path_of(name)) n_others += size;
  }
  if (n_others + n_bytes <= options_.max_bytes) return {};
  return fail(ErrorCode::too_large, fmt::format("its file would have {} bytes, the others in {} have {}, and "
                                                "--prefix-store-bytes is {}",
                                                n_bytes, options_.folder.string(), n_others, options_.max_bytes));
}

Result<void> PrefixStore::write(const PrefixFileHeader& header, PinId pin, const std::atomic<bool>& is_removed) {
  const std::string& name = header.name;
  const auto check_wanted = [&is_removed]() -> Result<void> {
    if (!is_removed) return {};
    return fail(ErrorCode::unavailable, "the prefix was removed while it was being stored");
  };
  {
    const MutexLock lock(mutex_);
    BATON_TRY_VOID(lock_folder());
    BATON_TRY_VOID(check_bytes(name, prefix_file_bytes(header)));
  }
  BATON_TRY(PrefixFileWriter writer, PrefixFileWriter::create(path_of(name), header));
  BATON_TRY_VOID(engine_->export_pin(pin, [&](std::span<const std::byte> piece) -> Result<void> {
    BATON_TRY_VOID(check_wanted());
    return writer.append(piece);
  }));
  BATON_TRY_VOID(writer.sync());
  const MutexLock lock(mutex_);
  BATON_TRY_VOID(check_wanted());
  BATON_TRY_VOID(writer.publish());
  BATON_TRY(const PrefixDefinition definition, definition_of(name, header.metadata));
  files_.insert_or_assign(name, File{header.metadata, definition.source, prefix_file_bytes(header), true});
  return {};
}

Result<void> PrefixStore::store(const std::string& name, std::string metadata, std::span<const TokenId> tokens, PinId pin,
                                const std::atomic<bool>& is_removed) {
  const auto begin = std::chrono::steady_clock::now();
  const PrefixLayout& layout = engine_->prefix_layout();
  const PrefixFileHeader header{.identity = identity_,
                                .name = name,
                                .metadata = std::move(metadata),
                                .tokens = {tokens.begin(), tokens.end()},
                                .hashes = hashes_of(tokens, layout.block_len),
                                .chunk_bytes = layout.piece_bytes(static_cast<std::int32_t>(tokens.size()) / layout.block_len)};
  auto written = write(header, pin, is_removed).and_then([this] { return sync_folder(options_.folder); });
  const MutexLock lock(mutex_);
  if (written) {
    const std::uint64_t n_bytes = prefix_file_bytes(header);
    ++counts_.n_written;
    counts_.n_written_bytes += static_cast<std::int64_t>(n_bytes);
    counts_.write_seconds += seconds_since(begin);
    log::info("event=prefix_stored name={} mb={:.1f} ms={:.0f}", log_value(name), static_cast<double>(n_bytes) / 1e6,
              seconds_since(begin) * 1e3);
    return {};
  }
  unlink(name);  // an older version must not come back
  if (!is_removed) {
    ++counts_.n_failed;
    log::warning("event=prefix_not_stored name={} reason={}", log_value(name), log_value(written.error().message));
  }
  return written;
}

void PrefixStore::unlink(const std::string& name) {
  const auto at = files_.find(name);
  if (at == files_.end()) return;
  std::error_code failed;
  auto locked = lock_folder();
  if (locked) std::filesystem::remove(path_of(name), failed);
  if (!locked || failed)
    log::warning("event=prefix_store_not_removed file={} reason={}", log_value(path_of(name).string()),
                 log_value(locked ? failed.message() : locked.error().message));
  files_.erase(at);
}

void PrefixStore::remove(const std::string& name) {
  const MutexLock lock(mutex_);
  unlink(name);
}

void PrefixStore::remove_unclaimed() {
  const MutexLock lock(mutex_);
  for (auto at = files_.begin(); at != files_.end();) {
    const auto& [name, file] = *at++;
    if (file.is_claimed || file.source == PrefixSource::api) continue;
    log::info("event=prefix_store_unclaimed name={} reason=\"neither a flag nor the prefix folder gives it any more\"",
              log_value(name));
    unlink(std::string(name));
  }
}

void PrefixStore::sync() const {
  if (const auto synced = sync_folder(options_.folder); !synced)
    log::warning("event=prefix_store_not_synced reason={}", log_value(synced.error().message));
}

PrefixStoreCounts PrefixStore::counts() const {
  const MutexLock lock(mutex_);
  PrefixStoreCounts counts = counts_;
  counts.n_files = static_cast<std::int64_t>(files_.size());
  for (const auto& [name, file] : files_) counts.n_bytes += static_cast<std::int64_t>(file.n_bytes);
  return counts;
}

}  // namespace baton
