/// Asks the server, then the files.
#include "bench/serve/serve_target.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "bench/http/completion_stream.h"
#include "bench/http/http_exchange.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "io/json.h"
#include "load/load_text.h"
#include "model/config.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr double kAnswerTimeoutS = 30;
constexpr double kMostReadyTimeoutS = 1e9;

/// KEY=VALUE of the command line as a header's line.
Result<std::string> header_line(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || text.find_first_of("\r\n") != std::string::npos)
    return fail(ErrorCode::invalid_request, fmt::format("--header must be KEY=VALUE, not '{}'", text));
  return text.substr(0, equals) + ": " + text.substr(equals + 1);
}

Result<std::vector<std::string>> header_lines(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  bool has_key = false;
  for (const std::string& text : texts) {
    BATON_TRY(std::string line, header_line(text));
    std::string name = line.substr(0, line.find(':'));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    has_key = has_key || name == "authorization";
    lines.push_back(std::move(line));
  }
  const char* const key = std::getenv("OPENAI_API_KEY");
  if (!has_key && key != nullptr && *key != '\0') lines.push_back(fmt::format("Authorization: Bearer {}", key));
  return lines;
}

/// The body of GET /v1/models once the server is ready; null if it has no such page.
Result<json::Value> read_models(const ServeTarget& target, double timeout_s) {
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Progress> progress;  // only if the server is not there at once
  while (true) {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    auto page = get_http(target.address, "/v1/models", target.headers, kAnswerTimeoutS);
    if (page && page->status == 200) return json::parse(page->body, "/v1/models");
    if (page && page->status != 503) {
      if (page->status == 401 || page->status == 403)
        return fail(ErrorCode::invalid_request,
                    fmt::format("the server refuses /v1/models with {}: {}", page->status, message_of_error(page->body)));
      return json::Value();
    }
    if (passed >= timeout_s || was_interrupted())
      return page ? fail(ErrorCode::unavailable, fmt::format("the server is not ready: {}", message_of_error(page->body)))
                  : tl::unexpected<Error>(std::move(page.error()));
    if (!progress) progress.emplace("waiting for the server", "seconds", static_cast<std::int64_t>(timeout_s));
    progress->update(static_cast<std::int64_t>(passed));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

std::string string_field(const json::Value& object, std::string_view key) {
  const json::Value* const value = json::find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

/// Loads the tokenizer that a flag names, or the one beside the model's config.json if the model is a folder or the
/// demo model.
Result<void> find_tokenizer(ServeTarget& target, const ServeTargetOptions& options, const std::string& root) {
  if (!options.tokenizer.empty()) {
    ModelOptions model;
    model.model = options.tokenizer;
    BATON_TRY(target.tokenizer, load_tokenizer(model, download_bar()));
    target.tokenizer_name = options.tokenizer;
  }
  for (const std::string& name : {options.tokenizer, target.model, root}) {
    std::error_code ignored;
    if (name.empty() || (name != "demo" && !fs::exists(fs::path(name) / "config.json", ignored))) continue;
    ModelOptions model;
    model.model = name;
    BATON_TRY(const ModelFiles files, find_text_files(model, download_bar()));
    if (!target.tokenizer) {
      if (auto found = Tokenizer::load(files.folder)) {
        target.tokenizer = std::move(*found);
        target.tokenizer_name = name;
      }
    }
    if (const auto spec = read_model_spec(files.folder); spec && target.n_vocab == 0) target.n_vocab = spec->n_vocab;
    break;
  }
  if (target.tokenizer || target.n_vocab > 0) return {};
  return fail(
      ErrorCode::invalid_request,
      fmt::format("'{}' is not a folder with a config.json here: name the model's tokenizer (--tokenizer FOLDER or id) or "
                  "the size of its vocabulary (--vocab-size)",
                  target.model));
}

}  // namespace

Result<ServeTarget> find_serve_target(const ServeTargetOptions& options) {
  if (!(options.ready_timeout_s >= 0 && options.ready_timeout_s <= kMostReadyTimeoutS))  // a NaN compares as false
    return fail(ErrorCode::invalid_request, fmt::format("--ready-check-timeout-sec must be from 0 to {:g}, not {:g}",
                                                        kMostReadyTimeoutS, options.ready_timeout_s));
  ServeTarget target;
  if (options.base_url.empty())
    target.address = {options.host, static_cast<std::uint16_t>(options.port), ""};
  else {
    BATON_TRY(target.address, parse_server_address(options.base_url));
  }
  BATON_TRY(target.headers, header_lines(options.headers));
  json::Value models;
  if (options.ready_timeout_s > 0 || options.model.empty()) {
    BATON_TRY(models, read_models(target, options.ready_timeout_s));
  }
  json::Value entry;
  if (const json::Value* data = json::find(models, "data"); data != nullptr && data->is_array() && !data->empty())
    entry = data->front();
  target.model = options.model.empty() ? string_field(entry, "id") : options.model;
  if (target.model.empty())
    return fail(ErrorCode::invalid_request, "the server has no /v1/models that names a model: --model must");
  target.served_name = options.served_model_name.empty() ? target.model : options.served_model_name;
  if (const json::Value* length = json::find(entry, "max_model_len"); length != nullptr && length->is_number_integer())
    target.max_model_len = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(length->get<std::int64_t>(), 0, std::numeric_limits<std::int32_t>::max()));
  target.n_vocab = options.vocab_size;
  BATON_TRY_VOID(find_tokenizer(target, options, string_field(entry, "root")));
  return target;
}

}  // namespace baton
