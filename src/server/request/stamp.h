/// The ids and the times that answers carry.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

/// 32 hexadecimal digits that cannot be guessed.
std::string random_id();

/// Unix time in seconds.
std::int64_t unix_seconds();

}  // namespace baton
