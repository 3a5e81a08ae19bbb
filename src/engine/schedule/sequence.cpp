/// What of a sequence needs its grammar's definition.
#include "engine/schedule/sequence.h"

#include "engine/schedule/answer_grammar.h"

namespace baton {

Sequence::Sequence(SequenceTask asked, SharedList<TokenId> prompt)
    : task(std::move(asked)), schedule(waiting(*task, std::move(prompt))) {
  if (task->constraint != nullptr) grammar = std::make_unique<AnswerGrammar>(task->constraint, task->stop_ids);
}

Sequence::Sequence(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

}  // namespace baton
