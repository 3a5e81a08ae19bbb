/// Reads named chat templates and chooses among them.
#include "text/template/chat_templates.h"

#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/file.h"

namespace baton {
namespace {

constexpr std::string_view kDefault = "default";
constexpr std::string_view kToolUse = "tool_use";
constexpr std::size_t kMaxTemplates = 100;

Result<void> add_source(const json::Value* name, const json::Value* text, std::string_view file, TemplateSources& sources) {
  if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string())
    return fail(ErrorCode::invalid_data,
                fmt::format("{}: a list of chat templates must hold objects with 'name' and 'template'", file));
  sources.insert_or_assign(name->get_ref<const std::string&>(), text->get_ref<const std::string&>());
  return {};
}

std::string names_of(const TemplateSources& sources) {
  std::vector<std::string_view> names;
  for (const auto& [name, source] : sources) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<TemplateSources> template_sources(const json::Value& config, std::string_view file) {
  TemplateSources sources;
  const json::Value* value = json::find(config, "chat_template");
  if (value == nullptr || value->is_null()) return sources;
  if (value->is_string()) {
    if (const auto& text = value->get_ref<const std::string&>(); !text.empty()) sources.emplace(kDefault, text);
  } else if (value->is_object()) {
    for (auto entry = value->begin(); entry != value->end(); ++entry) {
      const json::Value name = entry.key();
      BATON_TRY_VOID(add_source(&name, &entry.value(), file, sources));
    }
  } else if (value->is_array()) {
    for (const json::Value& entry : *value)
      BATON_TRY_VOID(add_source(json::find(entry, "name"), json::find(entry, "template"), file, sources));
  } else {
    return fail(ErrorCode::invalid_data, fmt::format("{}: 'chat_template' must be a text or a list of templates, not {}", file,
                                                     json::describe_type(*value)));
  }
  return sources;
}

Result<TemplateSources> read_template_files(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  TemplateSources sources;
  std::error_code error;
  if (const fs::path single = folder / "chat_template.jinja"; fs::exists(single, error)) {
    BATON_TRY(std::string text, read_file(single));
    if (!text.empty()) sources.emplace(kDefault, std::move(text));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "additional_chat_templates", error)) {
    if (entry.path().extension() != ".jinja") continue;
    if (sources.size() >= kMaxTemplates)
      return fail(ErrorCode::too_large, fmt::format("{} holds more than {} chat templates", folder.string(), kMaxTemplates));
    BATON_TRY(std::string text, read_file(entry.path()));
    sources.insert_or_assign(entry.path().stem().string(), std::move(text));
  }
  return sources;
}

Result<std::string_view> choose_template(const TemplateSources& sources, std::string_view asked, bool has_tools) {
  if (sources.empty()) return fail(ErrorCode::invalid_request, "the model has no chat template");
  const std::string_view wanted = !asked.empty() ? asked : has_tools && sources.contains(kToolUse) ? kToolUse : kDefault;
  if (const auto found = sources.find(wanted); found != sources.end()) return std::string_view(found->first);
  if (asked.empty())
    return fail(
        ErrorCode::invalid_request,
        fmt::format("the model has several chat templates and none is called default; name one of: {}", names_of(sources)));
  return fail(ErrorCode::invalid_request, fmt::format("the model has no chat template called '{}'; there are: {}",
                                                      asked.substr(0, 100), names_of(sources)));
}

}  // namespace baton
