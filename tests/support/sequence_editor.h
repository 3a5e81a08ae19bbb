/// Gives tests write access to the parts of a sequence, to set up a state by hand.
#pragma once

#include "engine/schedule/sequence.h"

namespace baton {

/// The only class besides a part's writer that may change the part. Only tests define it.
class SequenceEditor {
 public:
  static SequenceTask& task(Sequence& sequence) { return sequence.task.write(); }
  static SequenceSchedule& schedule(Sequence& sequence) { return sequence.schedule.write(); }
  static SequenceSampling& sampling(Sequence& sequence) { return sequence.sampling.write(); }
};

}  // namespace baton
