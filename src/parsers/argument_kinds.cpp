/// Schemas as a graph, through which kinds are passed to their users until nothing changes.
#include "parsers/argument_kinds.h"

#include <cstddef>
#include <vector>

namespace baton::parsers {

unsigned kind_of_value(const json::Value& value) {
  if (value.is_string()) return kAllowsString;
  if (value.is_number()) return kAllowsNumber;
  if (value.is_boolean()) return kAllowsBoolean;
  if (value.is_null()) return kAllowsNull;
  return value.is_object() ? kAllowsObject : kAllowsArray;
}

namespace {

using json::Value;

unsigned kind_of_type(const Value& name) {
  if (!name.is_string()) return 0;
  const auto& type = name.get_ref<const std::string&>();
  if (type == "string") return kAllowsString;
  if (type == "integer" || type == "number") return kAllowsNumber;
  if (type == "boolean") return kAllowsBoolean;
  if (type == "null") return kAllowsNull;
  if (type == "object") return kAllowsObject;
  return type == "array" ? unsigned{kAllowsArray} : 0U;
}

/// A list of values in a schema: none where the member is missing or no list.
const Value::array_t& list_of(const Value* member) {
  static const Value::array_t kNone;
  return member != nullptr && member->is_array() ? member->get_ref<const Value::array_t&>() : kNone;
}

/// The schemas that decide the kinds of one tool's arguments. A schema allows what it says itself and, unless it says a type,
/// what the schemas allow that it uses. There are six kinds, so each schema changes at most six times and each use is followed
/// at most six times, whatever refers to what.
class SchemaGraph {
 public:
  SchemaGraph(const Value& root, WorkMeter& meter) : root_(root), meter_(meter) {}

  /// The number of a schema that kinds() is asked for, and that no other schema of the graph has been added for.
  std::size_t add(const Value& schema) {
    meter_.write(sizeof(Schema));
    schemas_.push_back({.value = &schema});
    return schemas_.size() - 1;
  }
  /// Reads all that the added schemas use, and passes kinds on. False: the budget is over.
  bool resolve() {
    for (std::size_t i = 0; i < schemas_.size(); ++i)
      if (!read(i)) return false;
    return pass_on();
  }
  unsigned kinds(std::size_t schema) const { return schemas_[schema].kinds; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Schema {
    const Value* value;
    std::size_t first_user = kNone;
    unsigned kinds = 0;
  };
  /// A schema that uses another one, and the next one that uses the same.
  struct User {
    std::size_t schema;
    std::size_t next;
  };
  struct Definition {
    const Value* schema;
    std::size_t number = kNone;
  };

  void use(std::size_t user, std::size_t used) {
    meter_.write(sizeof(User));
    users_.push_back({user, schemas_[used].first_user});
    schemas_[used].first_user = users_.size() - 1;
  }

  /// The schemas of `$defs` and `definitions` by the end of the references to them ("$defs/name"), and the root as "".
  void index_definitions() {
    if (!definitions_.empty()) return;
    definitions_.emplace("", Definition{&root_});
    for (const char* const place : {"$defs", "definitions"}) {
      const Value* all = json::find(root_, place);
      if (all == nullptr || !all->is_object()) continue;
      for (const auto& [name, schema] : all->get_ref<const Value::object_t&>()) {
        if (!meter_.pass(name.size()) || !meter_.write(sizeof(Definition) + name.size())) return;
        definitions_.emplace(std::string(place) + "/" + name, Definition{&schema});
      }
    }
  }

  void follow(std::size_t user, const Value& ref) {
    if (!ref.is_string()) return;
    const std::string_view text = ref.get_ref<const std::string&>();
    if (!text.starts_with("#")) return;
    index_definitions();
    // Comparing with names of a tree of them.
    if (!meter_.pass(16 * text.size())) return;
    const auto found = definitions_.find(text.substr(text.starts_with("#/") ? 2 : 1));
    if (found == definitions_.end()) return;
    if (found->second.number == kNone) found->second.number = add(*found->second.schema);
    use(user, found->second.number);
  }

  /// Reads what a schema says itself, and adds the schemas that it uses. False: the budget is over.
  bool read(std::size_t number) {
    const Value& schema = *schemas_[number].value;
    if (!schema.is_object()) return meter_.spend(1);
    if (!meter_.spend(1 + static_cast<std::int64_t>(schema.size()))) return false;
    const Value *type = nullptr, *constant = nullptr, *values = nullptr, *any = nullptr, *one = nullptr, *all = nullptr,
                *ref = nullptr;
    for (const auto& [name, value] : schema.get_ref<const Value::object_t&>()) {
      if (name == "type") type = &value;
      if (name == "const") constant = &value;
      if (name == "enum") values = &value;
      if (name == "anyOf") any = &value;
      if (name == "oneOf") one = &value;
      if (name == "allOf") all = &value;
      if (name == "$ref") ref = &value;
    }
    unsigned kinds = type == nullptr ? 0 : kind_of_type(*type);
    for (const Value& name : list_of(type)) kinds |= kind_of_type(name);
    if (kinds == 0 && constant != nullptr) kinds = kind_of_value(*constant);
    const bool is_decided = kinds != 0;
    if (!is_decided)
      for (const Value& value : list_of(values)) kinds |= kind_of_value(value);
    schemas_[number].kinds = kinds;
    if (!meter_.spend(static_cast<std::int64_t>(list_of(type).size() + list_of(values).size()))) return false;
    if (is_decided) return true;
    for (const Value* list : {any, one, all})
      for (const Value& part : list_of(list)) {
        if (!meter_.spend(1)) return false;
        use(number, add(part));
      }
    if (ref != nullptr) follow(number, *ref);
    return meter_.is_within();
  }

  bool pass_on() {
    std::vector<std::size_t> changed;
    if (!meter_.write(6 * sizeof(std::size_t) * schemas_.size())) return false;
    for (std::size_t i = 0; i < schemas_.size(); ++i)
      if (schemas_[i].kinds != 0) changed.push_back(i);
    while (!changed.empty()) {
      const Schema used = schemas_[changed.back()];
      changed.pop_back();
      for (std::size_t i = used.first_user; i != kNone; i = users_[i].next) {
        if (!meter_.spend(1)) return false;
        Schema& user = schemas_[users_[i].schema];
        if ((user.kinds | used.kinds) == user.kinds) continue;
        user.kinds |= used.kinds;
        changed.push_back(users_[i].schema);
      }
    }
    return meter_.is_within();
  }

  const Value& root_;
  WorkMeter& meter_;
  std::vector<Schema> schemas_;
  std::vector<User> users_;
  std::map<std::string, Definition, std::less<>> definitions_;
};

/// What one argument takes besides its name.
constexpr std::size_t kArgumentBytes = 96;

}  // namespace

ArgumentKinds::ArgumentKinds(const Value& parameters, WorkMeter& meter) {
  const Value* properties = json::find(parameters, "properties");
  if (properties == nullptr || !properties->is_object()) return;
  const auto& members = properties->get_ref<const Value::object_t&>();
  SchemaGraph graph(parameters, meter);
  for (const auto& [name, schema] : members) {
    if (!meter.pass(name.size())) return;
    graph.add(schema);
  }
  if (!graph.resolve()) return;
  std::size_t number = 0;
  for (const auto& [name, schema] : members) {
    const unsigned kinds = graph.kinds(number++);
    if (kinds == 0 || kinds == kAllowsString) continue;
    if (!meter.pass(16 * name.size()) || !meter.write(kArgumentBytes + name.size())) return;
    kinds_.emplace(name, static_cast<std::uint8_t>(kinds));
    n_bytes_ += kArgumentBytes + name.size();
  }
}

}  // namespace baton::parsers
