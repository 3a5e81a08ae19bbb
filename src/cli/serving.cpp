/// A loaded model and registered prefixes for the server's code.
#include "cli/serving.h"

#include <utility>

#include <fmt/format.h>

namespace baton {

ServedModel served_model(const ModelFiles& files, TextSide text, const Engine& engine) {
  ServedModel model{.names = {files.name},
                    .root = files.folder.string(),
                    .tokenizer = std::move(text.tokenizer),
                    .chat_template = std::move(text.chat_template),
                    .defaults = text.defaults,
                    .n_vocab = text.n_vocab,
                    .max_model_len = engine.info().max_model_len,
                    .tool_template = std::move(text.tool_template),
                    .format = std::move(text.format),
                    .weight_scheme = engine.info().weight_scheme,
                    .activation_scheme = engine.info().activation_scheme};
  model.look_at_templates();
  return model;
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
