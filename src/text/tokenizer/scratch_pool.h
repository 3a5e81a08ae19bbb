/// Working memory of encoding, kept between calls.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "text/models/bpe.h"
#include "text/models/unigram.h"
#include "text/models/word_cache.h"

namespace baton {

/// What one call to encode needs for itself: the words it has seen, and the models' memory.
struct EncodeScratch {
  WordCache words;
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;
};

/// Scratches of one tokenizer that no call uses. Thread: any, several at once.
class ScratchPool {
 public:
  /// One that was used before, or a new one.
  std::unique_ptr<EncodeScratch> take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) return std::make_unique<EncodeScratch>();
    std::unique_ptr<EncodeScratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<EncodeScratch> scratch) {
    const MutexLock lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
