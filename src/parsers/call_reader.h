/// The seam between formats of calls: where they begin, and what reads them after their marker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "parsers/call_writer.h"

namespace baton::parsers {

struct CallBegin {
  std::span<const std::string_view> markers;  ///< texts that begin calls anywhere
  std::string_view first;                     ///< bytes that begin calls as the first of the answer

  std::size_t longest_marker() const {
    std::size_t longest = 0;
    for (const std::string_view marker : markers) longest = std::max(longest, marker.size());
    return longest;
  }
};

enum class CallStep : std::uint8_t {
  more,   ///< the calls continue
  done,   ///< the byte was the last one of the calls
  fault,  ///< the byte does not belong to the calls
};

/// Reads what follows a marker of calls. Thread: one at a time.
class CallReader {
 public:
  virtual ~CallReader() = default;
  /// After `marker`; "" where the calls begin without one, with the next byte.
  virtual void begin(std::string_view marker) = 0;
  virtual CallStep take(char c, CallWriter& writer) = 0;
  /// The text has ended: writes what was held back of an open call.
  virtual void end(TextEnd /*how*/, CallWriter& /*writer*/) {}
  /// What is known of the name of a call that is not open yet; empty if there is none.
  virtual std::string_view begun_name() const = 0;
};

}  // namespace baton::parsers
