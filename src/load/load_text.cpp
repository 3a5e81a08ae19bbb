/// Loads a model's tokenizer, template and sampling defaults.
#include "load/load_text.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/log.h"
#include "io/file.h"
#include "model/config.h"

namespace baton {
namespace {

SamplingDefaults defaults_of(const GenerationConfig& generation) {
  SamplingDefaults defaults;
  const bool samples = generation.do_sample.value_or(true);
  if (!samples) defaults.temperature = 0.0f;
  if (samples && generation.temperature) defaults.temperature = static_cast<float>(*generation.temperature);
  if (generation.top_p) defaults.top_p = static_cast<float>(*generation.top_p);
  if (generation.top_k) defaults.top_k = std::max(0, *generation.top_k);
  if (generation.min_p) defaults.min_p = static_cast<float>(*generation.min_p);
  defaults.max_tokens = generation.max_new_tokens;
  if (generation.repetition_penalty) defaults.repetition_penalty = static_cast<float>(*generation.repetition_penalty);
  return defaults;
}

/// The templates that Transformers takes for conversations without and with tools, or that of --chat-template for both,
/// and the format that they show.
Result<void> load_templates(const ModelOptions& options, TextSide& text) {
  const TemplateSources& sources = text.tokenizer.chat_templates();
  const auto source_of = [&](std::string_view name) {
    const auto found = sources.find(name);
    return found == sources.end() ? std::string() : found->second;
  };
  std::string source, tool_source;
  if (options.chat_template.empty()) {
    source = source_of("default");
    tool_source = source_of("tool_use");
  } else {
    BATON_TRY(source, read_file(options.chat_template));
  }
  const auto parser_name = [](const std::string& name) { return name == "none" ? std::string() : name; };
  BATON_TRY(text.format,
            parsers::MessageFormat::make(parser_name(options.tool_call_parser), parser_name(options.reasoning_parser),
                                         tool_source.empty() ? source : tool_source));
  if (!source.empty()) {
    BATON_TRY(text.chat_template, ChatTemplate::parse(std::move(source)));
  }
  if (!tool_source.empty() && text.chat_template) {
    BATON_TRY(text.tool_template, ChatTemplate::parse(std::move(tool_source)));
  }
  return {};
}

}  // namespace

Result<Tokenizer> load_tokenizer(const ModelOptions& options, const HubProgress& progress) {
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(options.model, ignored);
  std::filesystem::path folder;
  if (!is_file) {
    BATON_TRY(const ModelFiles files, find_text_files(options, progress));
    folder = files.folder;
  }
  BATON_TRY(Tokenizer tokenizer, is_file ? Tokenizer::load_file(options.model) : Tokenizer::load(folder));
  tokenizer.use_threads(options.threads, Tokenizer::kLongTextBytes);
  return tokenizer;
}

Result<TextSide> load_text(const ModelFiles& files, const ModelOptions& options) {
  BATON_TRY_VOID(check_model_options(options));
  BATON_TRY(const ModelSpec spec, read_model_spec(files.folder));
  BATON_TRY(Tokenizer tokenizer, Tokenizer::load(files.folder));
  tokenizer.use_threads(options.threads, Tokenizer::kLongTextBytes);
  if (tokenizer.n_vocab() > spec.n_vocab)
    log::warning("tokenizer_tokens={} model_tokens={} effect=\"ids from {} on are refused\"", tokenizer.n_vocab(), spec.n_vocab,
                 spec.n_vocab);
  TextSide text{.tokenizer = std::move(tokenizer), .n_vocab = spec.n_vocab};
  BATON_TRY_VOID(load_templates(options, text));
  for (const std::string_view stop : text.format.stops())
    if (const auto id = text.tokenizer.id_of(stop)) text.stop_ids.push_back(*id);
  if (options.generation_config != "vllm") {
    BATON_TRY(const GenerationConfig generation, load_generation_config(files, options));
    text.defaults = defaults_of(generation);
  }
  return text;
}

}  // namespace baton
