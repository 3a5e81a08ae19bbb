/// A JSON schema as a document: where its parts are, and what its references name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/result.h"
#include "io/json.h"

namespace baton::grammar {

/// Drafts that differ in what a keyword means.
enum class SchemaDraft { draft4, draft6, draft7, draft2019, draft2020 };

/// Move-only: parts of the schema are named by their addresses.
class SchemaDocument {
 public:
  /// Errors: invalid_request (no JSON, or neither an object nor a boolean); unsupported (a $schema other than the
  /// drafts).
  static Result<SchemaDocument> parse(std::string_view text);
  SchemaDocument(SchemaDocument&&) noexcept = default;
  SchemaDocument& operator=(SchemaDocument&&) noexcept = default;

  const json::Value& root() const { return *root_; }
  /// 2020-12 unless $schema says another.
  SchemaDraft draft() const { return draft_; }
  /// What `reference`, a $ref of the schema `from`, names: a part by JSON pointer, $id or $anchor. Errors: unsupported
  /// for what is not in this document.
  Result<const json::Value*> resolve(const json::Value& from, std::string_view reference) const;
  /// A JSON pointer to a part of the document, "#/properties/name", for messages.
  std::string path_of(const json::Value& part) const;

 private:
  struct Place {
    const json::Value* parent = nullptr;
    std::string key;
    std::string base;  // the absolute address of the schema resource that it belongs to
  };

  SchemaDocument() = default;
  void index(const json::Value& value, const Place& place, bool is_data);

  std::unique_ptr<json::Value> root_;
  SchemaDraft draft_ = SchemaDraft::draft2020;
  std::unordered_map<const json::Value*, Place> places_;
  std::map<std::string, const json::Value*, std::less<>> resources_;  // by absolute address without fragment
  std::map<std::string, const json::Value*, std::less<>> anchors_;    // by address#name
};

/// `reference` relative to `base` (RFC 3986, section 5.2).
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace baton::grammar
