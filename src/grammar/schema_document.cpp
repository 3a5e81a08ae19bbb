/// References inside of a JSON schema.
#include "grammar/schema_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

namespace {

/// The parts of an address. The authority begins with "//", the query with "?", where they exist.
struct Uri {
  std::string scheme;
  std::string authority;
  std::string path;
  std::string query;
};

Uri split_uri(std::string_view text) {
  Uri uri;
  text = text.substr(0, text.find('#'));
  const std::size_t colon = text.find_first_of(":/?");
  if (colon != std::string_view::npos && colon > 0 && text[colon] == ':') {
    uri.scheme = text.substr(0, colon + 1);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    const std::size_t end = std::min(text.find_first_of("/?", 2), text.size());
    uri.authority = text.substr(0, end);
    text.remove_prefix(end);
  }
  const std::size_t query = std::min(text.find('?'), text.size());
  uri.path = text.substr(0, query);
  uri.query = text.substr(query);
  return uri;
}

std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../"))
      path.remove_prefix(3);
    else if (path.starts_with("./"))
      path.remove_prefix(2);
    else if (path.starts_with("/./"))
      path.remove_prefix(2);
    else if (path == "/.")
      path = "/";
    else if (path.starts_with("/../") || path == "/..") {
      path = path == "/.." ? std::string_view("/") : path.substr(3);
      out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      const std::size_t end = std::min(path.find('/', 1), path.size());
      out += path.substr(0, end);
      path.remove_prefix(end);
    }
  }
  return out;
}

/// A step of a JSON pointer: ~1 is a slash, ~0 a tilde, %HH a byte. nullopt where an escape is damaged.
std::optional<std::string> unescape_step(std::string_view step) {
  std::string out;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%') {
      unsigned byte = 0;
      const char* begin = step.data() + i + 1;
      if (i + 2 >= step.size() || std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return std::nullopt;
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += step[i];
    }
  }
  for (std::size_t at = 0; (at = out.find('~', at)) != std::string::npos; ++at) {
    if (at + 1 >= out.size() || (out[at + 1] != '0' && out[at + 1] != '1')) return std::nullopt;
    out.replace(at, 2, out[at + 1] == '0' ? "~" : "/");
  }
  return out;
}

const json::Value* follow(const json::Value& from, std::string_view pointer) {
  const json::Value* at = &from;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string_view raw = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(raw.size());
    const std::optional<std::string> step = unescape_step(raw);
    if (!step) return nullptr;
    if (at->is_array()) {
      std::size_t index = 0;
      const auto parsed = std::from_chars(step->data(), step->data() + step->size(), index);
      if (parsed.ec != std::errc() || parsed.ptr != step->data() + step->size() || index >= at->size()) return nullptr;
      at = &(*at)[index];
    } else {
      at = json::find(*at, *step);
      if (at == nullptr) return nullptr;
    }
  }
  return at;
}

std::optional<SchemaDraft> draft_of(std::string_view address) {
  constexpr std::array<std::pair<std::string_view, SchemaDraft>, 5> kDrafts{
      {{"json-schema.org/draft-04/schema", SchemaDraft::draft4},
       {"json-schema.org/draft-06/schema", SchemaDraft::draft6},
       {"json-schema.org/draft-07/schema", SchemaDraft::draft7},
       {"json-schema.org/draft/2019-09/schema", SchemaDraft::draft2019},
       {"json-schema.org/draft/2020-12/schema", SchemaDraft::draft2020}}};
  for (const std::string_view scheme : {"https://", "http://"})
    if (address.starts_with(scheme)) address.remove_prefix(scheme.size());
  if (address.ends_with('#')) address.remove_suffix(1);
  if (address == "json-schema.org/schema") return SchemaDraft::draft2020;
  for (const auto& [name, draft] : kDrafts)
    if (address == name) return draft;
  return std::nullopt;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string fragment(reference.substr(hash));
  const Uri relative = split_uri(reference);
  const Uri from = split_uri(base);
  Uri result = relative;
  if (!relative.scheme.empty()) {
    result.path = without_dots(relative.path);
  } else {
    result.scheme = from.scheme;
    if (relative.authority.empty()) {
      result.authority = from.authority;
      if (relative.path.empty()) {
        result.path = from.path;
        if (relative.query.empty()) result.query = from.query;
      } else if (relative.path.starts_with('/')) {
        result.path = without_dots(relative.path);
      } else {
        const std::size_t slash = from.path.rfind('/');
        std::string merged = slash == std::string::npos ? std::string() : from.path.substr(0, slash + 1);
        if (!from.authority.empty() && from.path.empty()) merged = "/";
        result.path = without_dots(merged + relative.path);
      }
    }
  }
  return result.scheme + result.authority + result.path + result.query + fragment;
}

void SchemaDocument::index(const json::Value& value, const Place& place, bool is_data) {
  Place own = place;
  if (value.is_object() && !is_data) {
    const json::Value* id = json::find(value, draft_ == SchemaDraft::draft4 ? "id" : "$id");
    const bool ref_hides_it = draft_ <= SchemaDraft::draft7 && json::find(value, "$ref") != nullptr;
    if (id != nullptr && id->is_string() && !ref_hides_it) {
      const std::string& text = id->get_ref<const std::string&>();
      const std::string absolute = resolve_uri(place.base, text);
      if (text.starts_with('#')) {
        anchors_.emplace(absolute, &value);
      } else {
        own.base = absolute.substr(0, absolute.find('#'));
        resources_.emplace(own.base, &value);
      }
    }
    for (const std::string_view name : {"$anchor", "$dynamicAnchor"}) {
      const json::Value* anchor = json::find(value, name);
      if (anchor != nullptr && anchor->is_string()) anchors_.emplace(own.base + "#" + anchor->get<std::string>(), &value);
    }
  }
  places_.emplace(&value, own);
  if (value.is_object()) {
    for (auto field = value.begin(); field != value.end(); ++field)
      index(field.value(), {&value, field.key(), own.base}, is_data || field.key() == "enum" || field.key() == "const");
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) index(value[i], {&value, std::to_string(i), own.base}, is_data);
  }
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  SchemaDocument document;
  BATON_TRY(json::Value root, json::parse(text, "the JSON schema"));
  if (!root.is_object() && !root.is_boolean())
    return fail(ErrorCode::invalid_request,
                fmt::format("the JSON schema must be an object or a boolean, not {}", json::describe_type(root)));
  document.root_ = std::make_unique<json::Value>(std::move(root));
  if (const json::Value* schema = json::find(*document.root_, "$schema"); schema != nullptr) {
    if (!schema->is_string()) return json::wrong_type("$schema", "a string", *schema);
    const std::optional<SchemaDraft> draft = draft_of(schema->get_ref<const std::string&>());
    if (!draft)
      return fail(ErrorCode::unsupported, fmt::format("the JSON schema: $schema '{}' is not one of drafts 4 to 2020-12",
                                                      schema->get_ref<const std::string&>()));
    document.draft_ = *draft;
  }
  document.resources_.emplace("", document.root_.get());
  document.index(*document.root_, {}, /*is_data=*/false);
  return document;
}

Result<const json::Value*> SchemaDocument::resolve(const json::Value& from, std::string_view reference) const {
  const std::string absolute = resolve_uri(places_.at(&from).base, reference);
  const std::size_t hash = std::min(absolute.find('#'), absolute.size());
  const std::string_view fragment = std::string_view(absolute).substr(std::min(hash + 1, absolute.size()));
  const json::Value* found = nullptr;
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = anchors_.find(absolute);
    if (anchor != anchors_.end()) found = anchor->second;
  } else if (const auto resource = resources_.find(std::string_view(absolute).substr(0, hash)); resource != resources_.end()) {
    found = follow(*resource->second, fragment);
  }
  if (found == nullptr || places_.find(found) == places_.end())
    return fail(ErrorCode::unsupported,
                fmt::format("the JSON schema: {}/$ref '{}' names nothing in this schema", path_of(from), reference));
  return found;
}

std::string SchemaDocument::path_of(const json::Value& part) const {
  std::string path;
  for (const json::Value* at = &part; at != root_.get();) {
    const auto place = places_.find(at);
    if (place == places_.end()) break;
    path = "/" + place->second.key + path;
    at = place->second.parent;
  }
  return "#" + path;
}

}  // namespace baton::grammar
