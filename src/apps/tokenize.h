/// `baton tokenize`: texts to token ids and back, as JSON lines.
#pragma once

#include "cli/options.h"

namespace baton {

struct TokenizeOptions {
  ModelOptions model;                ///< model, revision, download_dir and threads
  bool no_special_tokens = false;    ///< nothing is put around texts
  bool decode = false;               ///< the lines are lists of ids
  bool skip_special_tokens = false;  ///< of decoded ids
};

void add_tokenize_options(CLI::App& app, TokenizeOptions& options);

/// Reads standard input: each line is a JSON string, each output line the list of its token ids; with `decode` each
/// line is a list of ids, each output line their text. Reads no weights. Exit code: 0, 1 (failed) or 2 (flags that
/// contradict each other).
int tokenize_main(const TokenizeOptions& options);

}  // namespace baton
