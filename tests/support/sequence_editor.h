/// Writes to the parts of a sequence, for tests that bring one into a state by hand.
#pragma once

#include "engine/sequence.h"

namespace baton {

/// The one class besides a part's writer that may change it. Only tests define it.
class SequenceEditor {
 public:
  static SequenceTask& task(Sequence& sequence) { return sequence.task.write(); }
  static SequenceSchedule& schedule(Sequence& sequence) { return sequence.schedule.write(); }
  static SequenceSampling& sampling(Sequence& sequence) { return sequence.sampling.write(); }
};

}  // namespace baton
