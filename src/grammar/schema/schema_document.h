/// A JSON schema as a document: where its parts are, and what its references name.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/limits/stack_space.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"

namespace baton::grammar {

/// Drafts that differ in what a keyword means.
enum class SchemaDraft { draft4, draft6, draft7, draft2019, draft2020 };

/// The most bytes of a path in a message; of a longer one its end is kept.
inline constexpr std::size_t kMaxPathBytes = 1000;

/// Move-only: parts of the schema are named by their addresses. Its bytes are taken from the meter while it lives,
/// which must outlive it.
class SchemaDocument {
 public:
  /// Errors: invalid_request (no JSON, or neither an object nor a boolean); unsupported (a $schema other than the
  /// drafts); the budget's.
  static Result<SchemaDocument> parse(std::string_view text, WorkMeter& meter);
  /// The same of a value, which must outlive it and not change.
  static Result<SchemaDocument> of(const json::Value& root, WorkMeter& meter);
  SchemaDocument(SchemaDocument&&) noexcept = default;
  SchemaDocument& operator=(SchemaDocument&&) noexcept = default;

  const json::Value& root() const { return *root_; }
  /// 2020-12 unless $schema says another.
  SchemaDraft draft() const { return draft_; }
  /// What `reference`, a $ref of the schema `from`, names: a part by JSON pointer, $id or $anchor. Errors: unsupported
  /// for what is not in this document; the budget's.
  Result<const json::Value*> resolve(const json::Value& from, std::string_view reference) const;
  /// A JSON pointer to a part of the document, "#/properties/name", for messages: long names are cut. "#" for what is
  /// not part of it.
  std::string path_of(const json::Value& part) const;

 private:
  struct Place {
    const json::Value* parent = nullptr;
    std::string_view key = {};  // in an object
    std::size_t index = 0;      // in a list
    const std::string* base;    // the absolute address of the schema resource that it belongs to
  };

  explicit SchemaDocument(WorkMeter& meter) : meter_(&meter), held_(meter) {}
  Result<void> read();
  Result<void> index(const json::Value& value, const Place& place, bool is_data);
  /// What `value`, a schema at `place`, is called; the address that references in it are relative to.
  Result<const std::string*> add_names(const json::Value& value, const Place& place);
  Result<std::string> absolute(std::string_view base, std::string_view reference) const;
  Result<const json::Value*> follow(const json::Value& from, std::string_view pointer) const;

  WorkMeter* meter_;
  HeldBytes held_;
  StackSpace stack_;                  // of the thread that reads it
  std::unique_ptr<json::Value> own_;  // the root, where it is no one else's
  const json::Value* root_ = nullptr;
  SchemaDraft draft_ = SchemaDraft::draft2020;
  std::unordered_map<const json::Value*, Place> places_;
  std::list<std::string> bases_;  // what places and resources_ point to; a deque allocates when it is moved
  std::map<std::string_view, const json::Value*> resources_;        // by absolute address without fragment
  std::map<std::string, const json::Value*, std::less<>> anchors_;  // by address#name
};

/// The value of a keyword; nullptr where the schema has none. Null stands for none, as serialisers write what is
/// absent; only of `const` it is the value.
const json::Value* find_keyword(const json::Value& schema, std::string_view keyword);

/// `reference` relative to `base` (RFC 3986, section 5.2).
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace baton::grammar
