/// `baton render`: conversations to the text or the token ids that a model gets, as JSON lines.
#pragma once

#include "cli/options.h"

namespace baton {

struct RenderOptions {
  ModelOptions model;   ///< model, revision, download_dir, chat_template and threads
  bool tokens = false;  ///< token ids in place of text
};

void add_render_options(CLI::App& app, RenderOptions& options);

/// Reads standard input: each line is an object with `messages` and, as the caller of Transformers'
/// apply_chat_template would give them, `tools`, `documents`, `chat_template_kwargs`, `add_generation_prompt`,
/// `continue_final_message` and `chat_template`. Each output line is {"prompt": text} or {"prompt_token_ids": ids}.
/// Reads no weights. Exit code: 0, 1 (failed).
int render_main(const RenderOptions& options);

}  // namespace baton
