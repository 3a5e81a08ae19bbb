/// Text for a terminal or a log: of unknown origin as one line, and numbers with their nouns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

/// The most bytes of an error message and of a line of the log.
inline constexpr std::size_t kMaxMessageBytes = 2000;

/// `text` with control characters and bytes that are not UTF-8 written as \n, \r, \t or \xNN. A result of more than
/// `max_bytes` (at least 100) keeps its beginning and its end, with " ... " between them.
std::string one_line(std::string_view text, std::size_t max_bytes);

/// `text` as the value of a `key=value` pair in the log: as it is if it is a word, otherwise in quotation marks, with a
/// backslash before a quotation mark and before a backslash. No text can end its value or begin another pair.
std::string log_value(std::string_view text);

/// A noun as it stands after a number: "snapshot" after 1, otherwise "snapshots".
std::string plural(std::int64_t number, std::string_view noun);

/// "1 snapshot", "12 snapshots".
std::string counted(std::int64_t number, std::string_view noun);

}  // namespace baton
