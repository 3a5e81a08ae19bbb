/// `--dataset-name`: the datasets of the benchmarks, each made into a Workload of token ids.
///
/// The same options, seed and tokenizer give the same requests on every machine: all numbers are drawn by SplitMix64 and
/// integer arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "bench/dataset/workload.h"
#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace CLI {
class App;
}

namespace baton {

inline constexpr std::array<std::string_view, 9> kDatasetNames{
    "random", "sharegpt", "prefix_repetition", "generated-shared-prefix", "multi-turn", "mmlu", "azure", "mooncake", "custom"};

/// The words around MMLU's questions: Hendrycks' own, or those of the RelayAttention authors' benchmark (their table 3).
inline constexpr std::array<std::string_view, 2> kMmluPrompts{"hendrycks", "relay-attention"};

/// The values of the flags of add_dataset_options. Names and defaults are those of vLLM, SGLang (gsp) and LMCache
/// (multi-turn). Lengths are in tokens.
struct DatasetOptions {
  std::string name = "random";                  ///< one of kDatasetNames
  std::string path = {};                        ///< the file or folder of a dataset that is read
  std::int32_t num_prompts = 1000;              ///< requests; 0: all of a file
  std::uint64_t seed = 0;                       ///< of tokens, lengths, samples and order
  std::int32_t prefix_len = 0;                  ///< one system prompt of so many tokens in front of every request
  std::optional<std::int32_t> input_len = {};   ///< replaces random_input_len
  std::optional<std::int32_t> output_len = {};  ///< replaces the output length of every request

  std::int32_t random_input_len = 1024;
  std::int32_t random_output_len = 128;
  double random_range_ratio = 0;  ///< lengths are uniform in [length * (1 - ratio), length * (1 + ratio)]
  std::int32_t random_prefix_len = 0;

  std::int32_t repetition_prefix_len = 256;
  std::int32_t repetition_suffix_len = 256;
  std::int32_t repetition_num_prefixes = 10;
  std::int32_t repetition_output_len = 128;

  std::int32_t gsp_num_groups = 64;
  std::int32_t gsp_prompts_per_group = 16;
  std::int32_t gsp_system_prompt_len = 2048;
  std::int32_t gsp_question_len = 128;
  std::int32_t gsp_output_len = 256;
  bool gsp_ordered = false;  ///< groups one after another instead of in random order

  std::int32_t num_users = 10;
  std::int32_t num_turns = 5;
  std::int32_t shared_system_prompt = 1000;
  std::int32_t user_history_prompt = 2000;  ///< tokens of a user's own in front of the first question
  std::int32_t question_len = 32;
  std::int32_t answer_len = 100;

  std::int32_t num_shots = 5;             ///< mmlu: solved questions in front of each question
  std::string mmlu_prompt = "hendrycks";  ///< one of kMmluPrompts
  std::string subjects = {};              ///< mmlu: names separated by commas; empty: all
  double speedup = 1;                     ///< azure, mooncake: arrivals are divided by this

  /// The flags that were given ("--num-prompts"); make_workload refuses flags that the dataset does not read.
  std::set<std::string, std::less<>> given = {};
};

/// What the requests are made for.
struct DatasetContext {
  std::int32_t n_vocab = 0;              ///< of the model; 0: the tokenizer's
  const Tokenizer* tokenizer = nullptr;  ///< null: none; a dataset that reads text is refused then
  std::int32_t max_model_len = 0;        ///< longer requests are left out; 0: no limit
};

/// The requests of a dataset. Drawn tokens are never special ones; without a tokenizer they are not among the first ten
/// ids, where most vocabularies have them. Requests that are longer (prompt and answer; of a conversation with all turns
/// before) than max_model_len are left out, with one line in the log. Errors: invalid_request names the flag at fault;
/// not_found and invalid_data name the file, and the line or entry.
Result<Workload> make_workload(const DatasetOptions& options, const DatasetContext& context);

/// Adds the flags only, --seed among them: a command that also has add_model_options removes that one's first.
void add_dataset_options(CLI::App& app, DatasetOptions& options);

}  // namespace baton
