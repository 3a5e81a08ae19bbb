/// Datasets of text: ShareGPT's conversations, and JSON lines of the user's own.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/dataset/dataset_kinds.h"
#include "io/json.h"
#include "text/template/chat_template.h"
#include "text/template/chat_templates.h"

namespace baton {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::int32_t kCustomOutputLen = 256;
constexpr std::array<std::string_view, 6> kCustomFields{"prompt",     "prompt_token_ids", "messages",
                                                        "output_len", "max_tokens",       "arrival_s"};

/// The texts of the elements of a JSON list, without parsing them: the file is larger than what its parsed values may
/// take in memory.
Result<std::vector<std::string_view>> elements_of(std::string_view text) {
  std::vector<std::string_view> elements;
  std::size_t begin = text.find('[') + 1;
  int depth = 1;
  bool is_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string) {
      if (c == '\\') ++i;
      is_string = c != '"';
      continue;
    }
    if (c == '"') is_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 1 || (depth == 1 && c != ',')) continue;
    const std::string_view element = text.substr(begin, i - begin);
    begin = i + 1;
    if (depth == 0 && elements.empty() && element.find_first_not_of(kBlanks) == std::string_view::npos) return elements;
    elements.push_back(element);
    if (depth == 0) return elements;
  }
  return fail(ErrorCode::invalid_data, "the list is not closed");
}

/// The first two texts of a conversation; nothing if it has fewer.
Result<std::optional<std::pair<std::string, std::string>>> first_turns(std::string_view text) {
  using Turns = std::optional<std::pair<std::string, std::string>>;
  BATON_TRY(const json::Value entry, json::parse(text, "the entry"));
  BATON_TRY(const auto turns, json::get_optional<std::vector<json::Value>>(entry, "conversations"));
  if (!turns || turns->size() < 2) return Turns{};
  BATON_TRY(std::string prompt, json::get<std::string>((*turns)[0], "value"));
  BATON_TRY(std::string answer, json::get<std::string>((*turns)[1], "value"));
  return Turns(std::in_place, std::move(prompt), std::move(answer));
}

/// Renders and encodes the lines of a custom dataset. The chat template is parsed when the first line needs it.
class CustomLines {
 public:
  explicit CustomLines(const DatasetSource& source) : options_(source.options), context_(source.context) {
    n_vocab_ = context_.n_vocab > 0 || context_.tokenizer == nullptr ? context_.n_vocab : context_.tokenizer->n_vocab();
  }

  struct Line {
    WorkloadRequest request;
    bool has_arrival = false;
  };
  Result<Line> read(std::string_view text) {
    BATON_TRY(const json::Value line, json::parse(text, "the line"));
    if (!line.is_object())
      return fail(ErrorCode::invalid_data, fmt::format("the line must be an object, not {}", json::describe_type(line)));
    for (auto field = line.begin(); field != line.end(); ++field)
      if (std::ranges::find(kCustomFields, field.key()) == kCustomFields.end())
        return fail(ErrorCode::invalid_data,
                    fmt::format("unknown field '{}'; read are {}", field.key().substr(0, 100), fmt::join(kCustomFields, ", ")));
    Line made;
    BATON_TRY(made.request.prompt, prompt_of(line));
    BATON_TRY(made.request.output_len, output_len_of(line));
    BATON_TRY(const auto arrival, json::get_optional<double>(line, "arrival_s"));
    if (arrival.value_or(0) < 0) return fail(ErrorCode::invalid_data, "'arrival_s' must not be negative");
    made.request.arrival_s = arrival.value_or(0) / options_.speedup;
    made.has_arrival = arrival.has_value();
    return made;
  }

 private:
  Result<std::vector<TokenId>> prompt_of(const json::Value& line) {
    BATON_TRY(const auto text, json::get_optional<std::string>(line, "prompt"));
    BATON_TRY(auto ids, json::get_optional<std::vector<TokenId>>(line, "prompt_token_ids"));
    BATON_TRY(auto messages, json::get_optional<json::Value>(line, "messages"));
    if (text.has_value() + ids.has_value() + messages.has_value() != 1)
      return fail(ErrorCode::invalid_data, "one of prompt, prompt_token_ids and messages is needed");
    if (ids) {
      for (const TokenId id : *ids)
        if (id < 0 || id >= n_vocab_)
          return fail(ErrorCode::invalid_data, fmt::format("the id {} is not in the vocabulary of {}", id, n_vocab_));
      return *std::move(ids);
    }
    if (context_.tokenizer == nullptr) return needs_tokenizer(options_);
    if (text) return context_.tokenizer->encode(*text, true);
    if (!messages->is_array()) return json::wrong_type("messages", "a list", *messages);
    if (!template_) BATON_TRY_VOID(parse_template());
    ChatTemplate::Context context;
    context.messages = *std::move(messages);
    context.add_generation_prompt = true;
    context.role_tokens = context_.tokenizer->role_tokens();
    BATON_TRY(const std::string rendered, template_->render(context));
    return context_.tokenizer->encode(rendered, false);
  }

  Result<void> parse_template() {
    const TemplateSources& sources = context_.tokenizer->chat_templates();
    if (sources.empty()) return fail(ErrorCode::unsupported, "'messages' needs a tokenizer with a chat template");
    BATON_TRY(const std::string_view name, choose_template(sources, "", /*has_tools=*/false));
    BATON_TRY(template_, ChatTemplate::parse(sources.find(name)->second));
    return {};
  }

  Result<std::int32_t> output_len_of(const json::Value& line) const {
    BATON_TRY(const auto output_len, json::get_optional<std::int32_t>(line, "output_len"));
    BATON_TRY(const auto max_tokens, json::get_optional<std::int32_t>(line, "max_tokens"));
    if (output_len && max_tokens) return fail(ErrorCode::invalid_data, "output_len and max_tokens mean the same: give one");
    const std::int32_t own = output_len.value_or(max_tokens.value_or(kCustomOutputLen));
    if (own < 1) return fail(ErrorCode::invalid_data, fmt::format("an output of {} tokens; one at least is needed", own));
    return options_.output_len.value_or(own);
  }

  const DatasetOptions& options_;
  const DatasetContext& context_;
  std::int32_t n_vocab_ = 0;
  std::optional<ChatTemplate> template_;
};

}  // namespace

Result<Workload> sharegpt_text_workload(const DatasetSource& source, std::string_view text) {
  const DatasetOptions& options = source.options;
  if (source.context.tokenizer == nullptr) return needs_tokenizer(options);
  const Tokenizer& tokenizer = *source.context.tokenizer;
  const auto entries = elements_of(text);
  if (!entries) return fail(entries.error().code, fmt::format("{}: {}", options.path, entries.error().message));
  Workload workload;
  workload.name = "sharegpt";
  for (const std::size_t index : source.tokens.order_of(entries->size())) {
    if (options.num_prompts > 0 && workload.requests.size() == static_cast<std::size_t>(options.num_prompts)) break;
    const auto turns = first_turns((*entries)[index]);
    if (!turns)
      return fail(ErrorCode::invalid_data, fmt::format("{}, entry {}: {}", options.path, index + 1, turns.error().message));
    if (!*turns) continue;
    std::vector<TokenId> prompt = tokenizer.encode((*turns)->first, true);
    const auto answer_len = static_cast<std::int32_t>(tokenizer.encode((*turns)->second, true).size());
    const std::int32_t output_len = options.output_len.value_or(answer_len);
    if (!is_sharegpt_request(static_cast<std::int64_t>(prompt.size()), output_len, options.output_len.has_value())) continue;
    WorkloadRequest& request = workload.requests.emplace_back();
    request.prompt = std::move(prompt);
    request.output_len = output_len;
  }
  return workload;
}

Result<Workload> custom_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  BATON_TRY(const MappedFile file,
            open_dataset_file(options, fmt::format("JSON lines with {}", fmt::join(kCustomFields, ", "))));
  CustomLines lines(source);
  Workload workload;
  workload.name = "custom";
  std::string_view text = text_of(file);
  for (std::int64_t number = 1; !text.empty(); ++number) {
    if (options.num_prompts > 0 && workload.requests.size() == static_cast<std::size_t>(options.num_prompts)) break;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    auto made = lines.read(line);
    if (!made) return bad_dataset_line(options, number, made.error().message);
    if (workload.requests.empty()) workload.has_arrivals = made->has_arrival;
    if (made->has_arrival != workload.has_arrivals)
      return bad_dataset_line(options, number, "either all lines or none have 'arrival_s'");
    workload.requests.push_back(std::move(made->request));
  }
  std::ranges::stable_sort(workload.requests, {}, &WorkloadRequest::arrival_s);
  set_shared_lens(workload);
  return workload;
}

}  // namespace baton
