/// Renders standard input line by line.
#include "apps/programs.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "apps/json_lines.h"
#include "apps/render_line.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "io/file.h"
#include "load/load_text.h"

namespace baton {
namespace {

Result<void> render_lines(const RenderOptions& options) {
  BATON_TRY(const Tokenizer tokenizer, load_tokenizer(options.model, download_bar()));
  TemplateSources sources = tokenizer.chat_templates();
  if (!options.model.chat_template.empty()) {
    BATON_TRY(std::string source, read_file(options.model.chat_template));
    sources = {{"default", std::move(source)}};
  }
  const ParsedTemplates templates(std::move(sources));
  return convert_json_lines(STDIN_FILENO, options.model.threads, [&](const json::Value& line) -> Result<std::string> {
    BATON_TRY(const std::string text, render_line(line, tokenizer.role_tokens(), templates));
    json::Value answer;
    if (options.tokens) {
      answer["prompt_token_ids"] = tokenizer.encode(text, /*add_special_tokens=*/false);
    } else {
      answer["prompt"] = text;
    }
    return json::dump(answer);
  });
}

}  // namespace

int render_main(const RenderOptions& options) { return exit_code("baton render", render_lines(options)); }

}  // namespace baton
