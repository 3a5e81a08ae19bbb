/// References inside of a JSON schema.
#include "grammar/schema/schema_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/one_line.h"
#include "grammar/automaton/dfa.h"
#include "grammar/automaton/source_cursor.h"
#include "io/json_parse.h"

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
  std::string bytes;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      bytes += step[i];
      continue;
    }
    unsigned byte = 0;
    const char* begin = step.data() + i + 1;
    if (i + 2 >= step.size() || std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
    i += 2;
  }
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '~') {
      out += bytes[i];
      continue;
    }
    if (++i == bytes.size() || (bytes[i] != '0' && bytes[i] != '1')) return std::nullopt;
    out += bytes[i] == '0' ? '~' : '/';
  }
  return out;
}

/// A name as a step of a JSON pointer.
std::string escaped_step(std::string_view name) {
  std::string step;
  for (const char c : name) {
    if (c == '~' || c == '/')
      step += c == '~' ? "~0" : "~1";
    else
      step += c;
  }
  return step;
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

const json::Value* find_keyword(const json::Value& schema, std::string_view keyword) {
  const json::Value* value = json::find(schema, keyword);
  return value != nullptr && value->is_null() && keyword != "const" ? nullptr : value;
}

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

Result<std::string> SchemaDocument::absolute(std::string_view base, std::string_view reference) const {
  if (!meter_->pass(8 * (base.size() + reference.size()))) return over_budget(*meter_);
  return resolve_uri(base, reference);
}

Result<const std::string*> SchemaDocument::add_names(const json::Value& value, const Place& place) {
  const std::string* base = place.base;
  const json::Value* id = json::find(value, draft_ == SchemaDraft::draft4 ? "id" : "$id");
  const bool ref_hides_it = draft_ <= SchemaDraft::draft7 && find_keyword(value, "$ref") != nullptr;
  const auto hold = [&](std::size_t n_bytes) { return held_.add(n_bytes + 128); };  // an entry of a map, or of a deque
  if (id != nullptr && id->is_string() && !ref_hides_it) {
    const std::string& text = id->get_ref<const std::string&>();
    BATON_TRY(const std::string address, absolute(*base, text));
    if (!hold(address.size())) return over_budget(*meter_);
    if (text.starts_with('#')) {
      anchors_.emplace(address, &value);
    } else {
      base = &bases_.emplace_back(address.substr(0, address.find('#')));
      resources_.emplace(*base, &value);
    }
  }
  for (const std::string_view name : {"$anchor", "$dynamicAnchor"}) {
    const json::Value* anchor = json::find(value, name);
    if (anchor == nullptr || !anchor->is_string()) continue;
    const std::string& text = anchor->get_ref<const std::string&>();
    if (!meter_->pass(base->size() + text.size()) || !hold(base->size() + 1 + text.size())) return over_budget(*meter_);
    std::string address;
    address.reserve(base->size() + 1 + text.size());
    anchors_.emplace(address.append(*base).append("#").append(text), &value);
  }
  return base;
}

Result<void> SchemaDocument::index(const json::Value& value, const Place& place, bool is_data) {
  constexpr std::size_t kEntryBytes = 24 + sizeof(Place) + 16;  // with what the map takes for it
  if (!stack_.has_room(8192)) return fail(ErrorCode::too_large, "the JSON schema is nested too deep");
  if (!meter_->spend(4 + static_cast<std::int64_t>(value.size())) || !held_.add(kEntryBytes)) return over_budget(*meter_);
  Place own = place;
  if (value.is_object() && !is_data) {
    BATON_TRY(own.base, add_names(value, place));
  }
  places_.emplace(&value, own);
  if (value.is_object()) {
    for (auto field = value.begin(); field != value.end(); ++field)
      BATON_TRY_VOID(index(field.value(), {.parent = &value, .key = field.key(), .base = own.base},
                           is_data || field.key() == "enum" || field.key() == "const"));
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      BATON_TRY_VOID(index(value[i], {.parent = &value, .index = i, .base = own.base}, is_data));
  }
  return {};
}

Result<void> SchemaDocument::read() {
  const json::Value& root = *root_;
  if (!root.is_object() && !root.is_boolean())
    return fail(ErrorCode::invalid_request,
                fmt::format("the JSON schema must be an object or a boolean, not {}", json::describe_type(root)));
  if (const json::Value* schema = find_keyword(root, "$schema"); schema != nullptr) {
    if (!schema->is_string())
      return fail(ErrorCode::invalid_request,
                  fmt::format("the JSON schema: #/$schema must be a string, not {}", json::describe_type(*schema)));
    const std::optional<SchemaDraft> draft = draft_of(schema->get_ref<const std::string&>());
    if (!draft)
      return fail(ErrorCode::unsupported, fmt::format("the JSON schema: #/$schema '{}' is not one of drafts 4 to 2020-12",
                                                      one_line(schema->get_ref<const std::string&>(), kMaxQuotedBytes)));
    draft_ = *draft;
  }
  const std::string& no_address = bases_.emplace_back();
  resources_.emplace(no_address, &root);
  return index(root, {.base = &no_address}, /*is_data=*/false);
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text, WorkMeter& meter) {
  constexpr std::size_t kMostPerByte = 24;  // of values: "[0,0,..." while its list grows
  SchemaDocument document(meter);
  if (!meter.pass(8 * text.size()) || !document.held_.add(kMostPerByte * text.size())) return over_budget(meter);
  BATON_TRY(json::Value root, json::parse_cancellable(text, "the JSON schema", [&] { return !meter.check(); }));
  document.own_ = std::make_unique<json::Value>(std::move(root));
  document.root_ = document.own_.get();
  BATON_TRY_VOID(document.read());
  return document;
}

Result<SchemaDocument> SchemaDocument::of(const json::Value& root, WorkMeter& meter) {
  SchemaDocument document(meter);
  document.root_ = &root;
  BATON_TRY_VOID(document.read());
  return document;
}

/// Errors: the budget's. nullptr where there is no such part.
Result<const json::Value*> SchemaDocument::follow(const json::Value& from, std::string_view pointer) const {
  const json::Value* at = &from;
  while (!pointer.empty() && at != nullptr) {
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
      if (!meter_->spend(1 + static_cast<std::int64_t>(at->size() / 4))) return over_budget(*meter_);
      at = json::find(*at, *step);
    }
  }
  return at;
}

Result<const json::Value*> SchemaDocument::resolve(const json::Value& from, std::string_view reference) const {
  BATON_TRY(const std::string address, absolute(*places_.at(&from).base, reference));
  const std::size_t hash = std::min(address.find('#'), address.size());
  const std::string_view fragment = std::string_view(address).substr(std::min(hash + 1, address.size()));
  const json::Value* found = nullptr;
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = anchors_.find(address);
    if (anchor != anchors_.end()) found = anchor->second;
  } else if (const auto resource = resources_.find(std::string_view(address).substr(0, hash)); resource != resources_.end()) {
    BATON_TRY(found, follow(*resource->second, fragment));
  }
  if (found == nullptr || places_.find(found) == places_.end())
    return fail(ErrorCode::unsupported, fmt::format("the JSON schema: {}/$ref '{}' names nothing in this schema", path_of(from),
                                                    one_line(reference, kMaxQuotedBytes)));
  return found;
}

std::string SchemaDocument::path_of(const json::Value& part) const {
  constexpr std::size_t kMaxKeyBytes = 100;
  std::vector<std::string> steps;
  std::size_t n_bytes = 0;
  for (const json::Value* at = &part; at != root_;) {
    const auto place = places_.find(at);
    if (place == places_.end()) break;
    meter_->spend(4);
    const auto& [parent, key, index, base] = place->second;
    std::string step = parent->is_array() ? std::to_string(index) : escaped_step(key.substr(0, kMaxKeyBytes));
    if (key.size() > kMaxKeyBytes) step += "...";
    if (n_bytes + step.size() > kMaxPathBytes) {
      steps.emplace_back("...");
      break;
    }
    n_bytes += 1 + step.size();
    steps.push_back(std::move(step));
    at = parent;
  }
  std::string path = "#";
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) path += "/" + *step;
  return path;
}

}  // namespace baton::grammar
