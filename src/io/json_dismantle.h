/// The end of JSON values, without allocating.
#pragma once

#include "io/json.h"

namespace baton::json {

/// Empties a value without allocating. The library's destructor of a list or an object first allocates room for all that
/// is inside; where there is no memory, that ends the program. Recursive: the value is nested at most kMaxDepth deep.
void dismantle(Value& value) noexcept;

/// Dismantles a value at the end of its scope. The value must outlive it.
class Dismantling {
 public:
  explicit Dismantling(Value& value) : value_(value) {}
  ~Dismantling() { dismantle(value_); }
  Dismantling(const Dismantling&) = delete;
  Dismantling& operator=(const Dismantling&) = delete;

 private:
  Value& value_;
};

}  // namespace baton::json
