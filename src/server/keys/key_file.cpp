/// The fields of an entry, and what two entries must not have in common.
#include "server/keys/key_file.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/request/request.h"
#include "io/file.h"
#include "io/json.h"
#include "server/limits/prefix_name.h"

namespace baton {
namespace {

using json::Value;

constexpr std::size_t kMaxKeyBytes = 1024;
constexpr std::size_t kMaxSaltBytes = 256;
constexpr std::array<std::string_view, 10> kKeyFields = {"name",
                                                         "key",
                                                         "key_sha256",
                                                         "role",
                                                         "weight",
                                                         "cache_salt",
                                                         "requests_per_minute",
                                                         "tokens_per_minute",
                                                         "concurrent_requests",
                                                         "pinned_blocks"};

Error in_entry(std::size_t index, std::string_view name, Error error) {
  const std::string who = name.empty() ? "" : fmt::format(" ({})", name);
  return {ErrorCode::invalid_data, fmt::format("entry {}{}: {}", index + 1, who, error.message), std::move(error.param)};
}

Result<void> refuse_unknown(const Value& object, std::span<const std::string_view> known) {
  constexpr std::size_t kShown = 64;
  for (const auto& [field, value] : object.get_ref<const Value::object_t&>())
    if (std::ranges::find(known, field) == known.end())
      return fail(ErrorCode::invalid_data,
                  fmt::format("unknown field {}; there are: {}", json::dump(field.substr(0, kShown)), fmt::join(known, ", ")));
  return {};
}

Result<KeyDigest> parse_digest(const Value& entry) {
  BATON_TRY(const auto key, json::get_optional<std::string>(entry, "key"));
  BATON_TRY(const auto hex, json::get_optional<std::string>(entry, "key_sha256"));
  if (key.has_value() == hex.has_value()) return fail(ErrorCode::invalid_data, "it must have either 'key' or 'key_sha256'");
  if (key) {
    const bool is_usable =
        !key->empty() && key->size() <= kMaxKeyBytes && std::ranges::all_of(*key, [](char c) { return c > ' ' && c <= '~'; });
    if (!is_usable)
      return fail(ErrorCode::invalid_data,
                  fmt::format("'key' must be 1 to {} printable ASCII characters without spaces", kMaxKeyBytes));
    return digest_of(*key);
  }
  if (const auto digest = digest_of_hex(*hex)) return *digest;
  return fail(ErrorCode::invalid_data, "'key_sha256' must be 64 hexadecimal digits, as 'printf %s KEY | sha256sum' prints");
}

Result<std::optional<std::int64_t>> parse_quota(const Value& entry, std::string_view field) {
  const Value* const value = json::find(entry, field);
  if (value == nullptr || value->is_null()) return std::optional<std::int64_t>{};
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  BATON_TRY(const std::int64_t quota, json::to_int64(*value, field, field == "pinned_blocks" ? 0 : 1, kMost));
  return std::optional<std::int64_t>(quota);
}

Result<KeyEntry> parse_entry(const Value& given) {
  BATON_TRY_VOID(refuse_unknown(given, kKeyFields));
  KeyEntry entry;
  BATON_TRY(entry.name, json::get<std::string>(given, "name"));
  if (!is_prefix_name(entry.name)) return fail(ErrorCode::invalid_data, fmt::format("'name' must be {}", kPrefixNameRule));
  BATON_TRY(entry.digest, parse_digest(given));
  BATON_TRY(const auto role, json::get_optional<std::string>(given, "role"));
  if (role && *role != "user" && *role != "admin") return fail(ErrorCode::invalid_data, "'role' must be \"user\" or \"admin\"");
  entry.role = role == "admin" ? KeyRole::admin : KeyRole::user;
  if (const Value* weight = json::find(given, "weight"); weight != nullptr && !weight->is_null()) {
    BATON_TRY(const std::int64_t checked, json::to_int64(*weight, "weight", 1, kMaxTenantWeight));
    entry.weight = static_cast<std::int32_t>(checked);
  }
  BATON_TRY(const auto salt, json::get_optional<std::string>(given, "cache_salt"));
  if (salt && (salt->empty() || salt->size() > kMaxSaltBytes))
    return fail(ErrorCode::invalid_data, fmt::format("'cache_salt' must have 1 to {} bytes", kMaxSaltBytes));
  // The two kinds of salts cannot be equal.
  entry.salt = salt ? "salt:" + *salt : "name:" + entry.name;
  BATON_TRY(entry.quotas.requests_per_minute, parse_quota(given, "requests_per_minute"));
  BATON_TRY(entry.quotas.tokens_per_minute, parse_quota(given, "tokens_per_minute"));
  BATON_TRY(entry.quotas.concurrent_requests, parse_quota(given, "concurrent_requests"));
  BATON_TRY(entry.quotas.pinned_blocks, parse_quota(given, "pinned_blocks"));
  return entry;
}

Result<std::vector<KeyEntry>> parse_entries(const Value& file) {
  constexpr std::array<std::string_view, 1> kFileFields = {"keys"};
  if (!file.is_object())
    return fail(ErrorCode::invalid_data, fmt::format("it must hold an object, not {}", json::describe_type(file)));
  BATON_TRY_VOID(refuse_unknown(file, kFileFields));
  const Value* const list = json::find(file, "keys");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxKeys)
    return fail(ErrorCode::invalid_data, fmt::format("'keys' must be a list of 1 to {} entries", kMaxKeys));
  std::vector<KeyEntry> entries;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Value& given = (*list)[i];
    if (!given.is_object())
      return fail(ErrorCode::invalid_data,
                  fmt::format("entry {}: it must be an object, not {}", i + 1, json::describe_type(given)));
    auto entry = parse_entry(given);
    const Value* const name = json::find(given, "name");
    const bool is_named = name != nullptr && name->is_string() && is_prefix_name(name->get_ref<const std::string&>());
    const std::string_view shown = is_named ? std::string_view(name->get_ref<const std::string&>()) : std::string_view();
    if (!entry) return tl::unexpected<Error>(in_entry(i, shown, std::move(entry.error())));
    for (const KeyEntry& other : entries) {
      if (other.name == entry->name)
        return tl::unexpected<Error>(in_entry(i, shown, {ErrorCode::invalid_data, "another entry has the same 'name'"}));
      if (is_same_key(other.digest, entry->digest))
        return tl::unexpected<Error>(
            in_entry(i, shown, {ErrorCode::invalid_data, fmt::format("the entry {} has the same key", other.name)}));
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

}  // namespace

Result<std::vector<KeyEntry>> read_key_file(const std::filesystem::path& file) {
  BATON_TRY(const std::string text, read_file(file));
  auto entries =
      json::parse_unambiguous(text, file.string()).and_then([&](const Value& value) -> Result<std::vector<KeyEntry>> {
        auto parsed = parse_entries(value);
        if (!parsed) parsed.error().message = fmt::format("{}: {}", file.string(), parsed.error().message);
        return parsed;
      });
  if (!entries) {
    entries.error().code = ErrorCode::invalid_data;
    // The JSON library ends its messages with the text that it read last, which may be a key.
    std::string& message = entries.error().message;
    message.resize(std::min(message.size(), message.find("; last read")));
  }
  return entries;
}

}  // namespace baton
