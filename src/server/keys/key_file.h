/// The file of --api-key-file: which callers there are, what each may use, and whose prompts are kept apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "server/keys/auth.h"

namespace baton {

/// The most entries of a key file: each request is compared with all of them.
inline constexpr std::size_t kMaxKeys = 1000;

enum class KeyRole {
  user,   ///< generates and tokenises
  admin,  ///< also registers, reads and deletes prefixes
};

/// What a key may use; absent: no limit.
struct KeyQuotas {
  std::optional<std::int64_t> requests_per_minute = {};
  std::optional<std::int64_t> tokens_per_minute = {};  ///< of prompts and answers
  std::optional<std::int64_t> concurrent_requests = {};
  std::optional<std::int64_t> pinned_blocks = {};  ///< of the prefixes that it registers
  bool operator==(const KeyQuotas&) const = default;
};

struct KeyEntry {
  std::string name;  ///< in logs and metrics; see kPrefixNameRule
  KeyDigest digest = {};
  KeyRole role = KeyRole::user;
  KeyQuotas quotas = {};
  std::int32_t weight = 1;               ///< see Tenant
  std::optional<std::string> salt = {};  ///< absent: it shares its cache with all keys that have none
};

/// Reads {"keys": [{"name", "key" or "key_sha256", "role", "weight", "cache_salt", and the quotas}, ...]}. An entry
/// without a cache_salt is kept apart by its name. Errors name the file, the entry and the field, never a key:
/// not_found, invalid_data (also for an unknown field, a name or key given twice, no entry, too many).
Result<std::vector<KeyEntry>> read_key_file(const std::filesystem::path& file);

}  // namespace baton
