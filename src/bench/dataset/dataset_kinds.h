/// The makers of datasets, one for each name. All return the requests without --prefix-len, which make_workload adds.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/dataset/dataset.h"
#include "bench/dataset/dataset_tokens.h"
#include "io/file.h"

namespace baton {

/// What a maker reads.
struct DatasetSource {
  const DatasetOptions& options;
  const DatasetContext& context;
  const DatasetTokens& tokens;
};

/// Drawn entirely (dataset_drawn.cpp).
Result<Workload> random_workload(const DatasetSource& source);
Result<Workload> prefix_repetition_workload(const DatasetSource& source);
Result<Workload> generated_shared_prefix_workload(const DatasetSource& source);
/// Conversations in rounds: the first turn of every user, then the second of every user...
Result<Workload> multi_turn_workload(const DatasetSource& source);

/// Lengths of a file, with drawn tokens (dataset_lengths.cpp).
Result<Workload> sharegpt_workload(const DatasetSource& source);  ///< or of text, if the file is the JSON
Result<Workload> trace_workload(const DatasetSource& source);

/// Text (dataset_text.cpp, dataset_mmlu.cpp).
Result<Workload> sharegpt_text_workload(const DatasetSource& source, std::string_view text);
Result<Workload> custom_workload(const DatasetSource& source);
Result<Workload> mmlu_workload(const DatasetSource& source);

/// Whether vLLM's benchmark, and the RelayAttention authors' after it, take a ShareGPT request with these lengths.
/// `is_given_output`: --output-len was given, and short outputs count too.
bool is_sharegpt_request(std::int64_t prompt_len, std::int64_t output_len, bool is_given_output);

/// Refuses a workload whose tokens would take more than 4 GiB (too_large), before they are made.
Result<void> check_workload_size(std::int64_t n_prompt_tokens);

/// The file of --dataset-path. Errors: invalid_request without a path, saying what is `needed`; a compressed file (zstd,
/// gzip) is refused.
Result<MappedFile> open_dataset_file(const DatasetOptions& options, std::string_view needed);
std::string_view text_of(const MappedFile& file);

/// The error of a line of --dataset-path, from 1.
tl::unexpected<Error> bad_dataset_line(const DatasetOptions& options, std::int64_t line, std::string_view reason);

/// The error of a dataset that reads text, without a tokenizer.
tl::unexpected<Error> needs_tokenizer(const DatasetOptions& options);

/// Sets every shared_len to the longest beginning that the prompt has in common with another request's.
void set_shared_lens(Workload& workload);

}  // namespace baton
