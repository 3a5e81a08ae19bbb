/// Conversations that do not fit the model's context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/result.h"
#include "io/json.h"
#include "server/request/generation.h"
#include "server/served/served_model.h"

namespace baton {

/// A prompt that leaves no room for an answer, or not for the one that was asked for.
struct ContextExcess {
  std::int64_t prompt_len = 0;                  ///< tokens
  std::optional<std::int32_t> max_tokens = {};  ///< asked for, beyond what fits after the prompt; absent: nothing fits
  std::int32_t max_len = 0;                     ///< of prompt and answer
  bool is_least = false;                        ///< the text was not encoded: prompt_len is the least that it can have
};

/// What is too long about a prompt of so many tokens; nullopt: nothing.
std::optional<ContextExcess> context_excess(const ServedModel& model, std::int64_t prompt_len, const SamplingParams& sampling);

/// The same of so many bytes of a rendered conversation.
std::optional<ContextExcess> text_excess(const ServedModel& model, std::size_t n_bytes);
/// The same of texts of a conversation that chat templates show, for one that could not be rendered: those of the user, of the
/// system and of tools. nullopt: they may fit.
std::optional<ContextExcess> text_excess(const ServedModel& model, const json::Value& messages);

/// Its error as clients of the OpenAI API know it.
Error openai_excess(const ContextExcess& excess);

}  // namespace baton
