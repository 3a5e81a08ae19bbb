/// A loaded model and registered prefixes for the server's code.
#include "cli/serving.h"

#include <utility>

#include <fmt/format.h>

#include "load/load_engine.h"
#include "load/load_text.h"

namespace baton {

Result<ServedEngine> load_served(const ModelFiles& files, ModelOptions options) {
  BATON_TRY(TextSide text, load_text(files, options));
  options.eos_token_ids = text.stop_ids;
  BATON_TRY(std::unique_ptr<Engine> engine, load_engine(files, options));
  ServedModel served{.names = {files.name},
                     .root = files.folder.string(),
                     .tokenizer = std::move(text.tokenizer),
                     .chat_template = std::move(text.chat_template),
                     .defaults = text.defaults,
                     .n_vocab = text.n_vocab,
                     .max_model_len = engine->info().max_model_len,
                     .tool_template = std::move(text.tool_template),
                     .format = std::move(text.format),
                     .weight_scheme = engine->info().weight_scheme,
                     .activation_scheme = engine->info().activation_scheme};
  served.look_at_templates();
  return ServedEngine{std::move(engine), std::move(served)};
}

Result<PrefixDefinition> read_prefix_flag(const std::string& definition) {
  const std::size_t equals = definition.find('=');
  if (equals == std::string::npos || equals == 0)
    return fail(ErrorCode::invalid_request, fmt::format("--prefix {}: write NAME=FILE", definition), "prefix");
  return read_prefix(definition.substr(0, equals), definition.substr(equals + 1));
}

Result<std::unique_ptr<Prefixes>> load_prefixes(const std::vector<std::string>& definitions, const ServedModel& model,
                                                Engine& engine) {
  auto prefixes = std::make_unique<Prefixes>(model, engine);
  for (const std::string& definition : definitions) {
    BATON_TRY(PrefixDefinition read, read_prefix_flag(definition));
    BATON_TRY_VOID(prefixes->add(std::move(read)));
  }
  return prefixes;
}

}  // namespace baton
