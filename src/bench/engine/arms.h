/// The arms of a benchmark: how requests share the keys and values of a prompt that they have in common.
#pragma once

#include <array>
#include <string_view>

namespace baton {

/// relay: a step reads a shared prompt once for all requests; paged: each request reads it; unshared: each request
/// computes, keeps and reads its own copy.
inline constexpr auto kArmNames = std::to_array<std::string_view>({"relay", "paged", "unshared"});

constexpr bool has_relay(std::string_view arm) { return arm == "relay"; }
constexpr bool has_shared_prompts(std::string_view arm) { return arm != "unshared"; }

}  // namespace baton
