/// Names of files, and what is in the cache.
#include "io/hub_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <fmt/format.h>

#include "core/utf8.h"
#include "io/file.h"
#include "io/json.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kSettings = {
    "config.json",           "hf_quant_config.json",    "quantize_config.json", "quant_config.json", "generation_config.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",  "chat_template.json"};
constexpr std::array<std::string_view, 4> kTokenizers = {"tekken.json", "tiktoken.model", "tokenizer.model", "tokenizer.json"};
// A tokenizer only where there is none of these.
constexpr std::array<std::string_view, 3> kVocabularies = {"vocab.json", "merges.txt", "added_tokens.json"};
constexpr std::string_view kTemplateFolder = "additional_chat_templates/";

}  // namespace

bool is_safe_name(std::string_view name) { return !name.empty() && name.front() != '.' && ascii::consists_of(name, "-_."); }

bool is_model_id(std::string_view model) {
  const std::size_t slash = model.find('/');
  if (slash == std::string_view::npos) return is_safe_name(model);
  return is_safe_name(model.substr(0, slash)) && is_safe_name(model.substr(slash + 1));
}

bool is_revision(std::string_view revision) {
  return !revision.empty() && revision.front() != '/' && ascii::consists_of(revision, "-_./") &&
         revision.find("..") == std::string_view::npos;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 &&
         std::all_of(text.begin(), text.end(), [](char c) { return ascii::is_digit(c) || (c >= 'a' && c <= 'f'); });
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::vector<std::string> small_files_of(const std::set<std::string>& files) {
  std::vector<std::string> found;
  const auto take = [&](std::string_view name) {
    if (files.contains(std::string(name))) found.emplace_back(name);
  };
  for (const std::string_view name : kSettings) take(name);
  for (const std::string& name : files) {
    const std::string_view view = name;
    if (view.starts_with(kTemplateFolder) && view.ends_with(".jinja") && is_safe_name(view.substr(kTemplateFolder.size())))
      found.push_back(name);
  }
  const std::size_t n_before = found.size();
  for (const std::string_view name : kTokenizers) take(name);
  if (found.size() == n_before)
    for (const std::string_view name : kVocabularies) take(name);
  return found;
}

Result<std::set<std::string>> shards_of(const fs::path& index) {
  BATON_TRY(const json::Value root, json::parse_file(index));
  const json::Value* files = json::find(root, "weight_map");
  std::set<std::string> shards;
  if (files != nullptr && files->is_object()) {
    for (const auto& [tensor, file] : files->items()) {
      const auto name = json::convert<std::string>(file, tensor);
      if (!name || !is_safe_name(*name))
        return fail(ErrorCode::invalid_data, fmt::format("{}: the shard of '{}' must be a file name", index.string(), tensor));
      shards.insert(*name);
    }
  }
  if (shards.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} names no weights", index.string()));
  return shards;
}

bool has_all_files(const fs::path& snapshot, bool wants_weights) {
  if (!is_there(snapshot / "config.json")) return false;
  const auto has = [&](std::string_view name) { return is_there(snapshot / name); };
  if (!wants_weights && (std::ranges::any_of(kTokenizers, has) || (has(kVocabularies[0]) && has(kVocabularies[1]))))
    return true;
  if (is_there(snapshot / kWeights)) return true;
  if (!is_there(snapshot / kIndex)) return false;
  const auto shards = shards_of(snapshot / kIndex);
  return shards &&
         std::all_of(shards->begin(), shards->end(), [&](const std::string& shard) { return is_there(snapshot / shard); });
}

fs::path repository_of(const fs::path& cache, std::string_view model) {
  std::string folder = "models--" + std::string(model);
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  return cache / folder;
}

std::optional<std::string> cached_commit(const fs::path& repository, std::string_view revision) {
  if (is_commit(revision)) return std::string(revision);
  auto text = read_file(repository / "refs" / revision);
  if (!text) return std::nullopt;
  text->erase(std::find_if(text->begin(), text->end(), [](char c) { return c == '\n' || c == '\r' || c == ' '; }), text->end());
  if (!is_commit(*text)) return std::nullopt;
  return *text;
}

}  // namespace baton::hub
