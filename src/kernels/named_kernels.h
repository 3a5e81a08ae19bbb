/// What a packed weight that is not dense offers beside PackedMatrix or PackedExperts: the names of its kernels.
#pragma once

#include <string>

namespace baton {

/// Names say to people what multiplies the weight; nothing depends on them.
class NamedKernels {
 public:
  std::string kernels;  ///< from that for one row of x to that for many: "stream,wide"

 protected:
  ~NamedKernels() = default;
};

}  // namespace baton
