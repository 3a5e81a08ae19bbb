/// The seam between formats of calls: what reads them behind their marker.
#pragma once

#include <cstdint>
#include <string_view>

#include "parsers/call_writer.h"

namespace baton::parsers {

enum class CallStep : std::uint8_t {
  more,   ///< the calls go on
  done,   ///< the byte was the last one of the calls
  fault,  ///< the byte does not belong to the calls
};

/// Reads what follows a marker of calls. Thread: one at a time.
class CallReader {
 public:
  virtual ~CallReader() = default;
  /// Behind `marker`; "" where the calls begin without one, with the next byte.
  virtual void begin(std::string_view marker) = 0;
  virtual CallStep take(char c, CallWriter& writer) = 0;
  /// The text has ended: writes what was held back of an open call.
  virtual void end(CallWriter& /*writer*/) {}
};

}  // namespace baton::parsers
