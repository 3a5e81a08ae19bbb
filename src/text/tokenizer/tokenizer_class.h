/// The components that Transformers' tokenizer classes build themselves instead of reading them from a tokenizer.json.
#pragma once

#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer_config.h"

namespace baton {

/// What LlamaTokenizer and CodeLlamaTokenizer of Transformers 5 make of a tokenizer.json: they keep vocabulary, merges
/// and post-processor, and replace normalizer, pre-tokenizer and decoder as `legacy` and `add_prefix_space` say. Changes
/// nothing for another class, or where the model is no BPE with byte fallback, which these classes are made for.
void rebuild_for_class(json::Value& root, TokenizerConfig& config);

/// The tokenizer.json that GPT2Tokenizer, CodeGenTokenizer and Qwen2Tokenizer of Transformers 5 make of vocab.json
/// (tokens and ids), merges.txt (a pair in each line) and added_tokens.json (tokens and ids, or null), which counts only
/// where the configuration lists no added tokens. Errors: unsupported for another class; invalid_data.
Result<json::Value> root_for_class(json::Value vocab, std::string_view merges, const json::Value& added,
                                   TokenizerConfig& config);

}  // namespace baton
