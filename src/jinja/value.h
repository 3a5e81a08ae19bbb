/// Values of a template while it renders: 16-byte handles into an arena that belongs to one render call.
///
/// Why an arena: lists, dicts and namespaces have reference semantics in Jinja and may form cycles; a render is short
/// and its memory is bounded, so everything lives until it ends. Handles are trivially copyable and nothing counts
/// references.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"

namespace baton::jinja {

struct List;
struct Dict;
struct Function;
struct Loop;
struct Scope;
struct Native;
struct For;
struct Macro;

enum class Kind : std::uint8_t {
  undefined,  ///< holds the name that was looked up
  none,
  boolean,
  integer,
  floating,
  string,
  list,  ///< every ordered Python type: List::Flavor says which
  dict,
  name_space,
  function,
  loop,
};

/// One value. Strings are views into the arena, the parsed template or the caller's context, all of which outlive the
/// render.
class Value {
 public:
  Value() : kind_(Kind::none) { data_.integer = 0; }
  static Value none() { return Value(); }
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value floating(double value);
  static Value string(std::string_view text);  ///< does not copy
  /// `text`, which counts as HTML that needs no escaping if `like` does (Jinja's Markup: the results of `safe` and
  /// `escape`).
  static Value markup_like(Value like, Value text);
  static Value markup(Value text);
  static Value list(List* list);
  static Value dict(Dict* dict);
  static Value name_space(Dict* members);
  static Value function(Function* function);
  static Value loop(Loop* loop);
  /// The undefined value of a variable called `name` (not copied).
  static Value undefined(std::string_view name);
  /// The undefined value of `name`, which a value of kind `owner` lacks.
  static Value undefined(std::string_view name, Kind owner);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::floating); }
  bool is_whole() const { return is(Kind::boolean) || is(Kind::integer); }

  bool as_bool() const { return data_.boolean; }
  std::int64_t as_int() const { return is(Kind::boolean) ? std::int64_t{data_.boolean} : data_.integer; }
  double as_double() const { return is(Kind::floating) ? data_.floating : static_cast<double>(as_int()); }
  std::string_view as_string() const { return {data_.text, size_}; }
  bool is_markup() const { return is_markup_; }
  List* as_list() const { return data_.list; }
  Dict* as_dict() const { return data_.dict; }  ///< of a dict or a namespace
  Function* as_function() const { return data_.function; }
  Loop* as_loop() const { return data_.loop; }
  std::string_view undefined_name() const { return {data_.text, size_}; }
  /// The kind that lacked the name; Kind::undefined when a variable was not set.
  Kind undefined_owner() const { return owner_; }

 private:
  Kind kind_;
  Kind owner_ = Kind::undefined;
  bool is_markup_ = false;
  std::uint32_t size_ = 0;
  union {
    bool boolean;
    std::int64_t integer;
    double floating;
    const char* text;
    List* list;
    Dict* dict;
    Function* function;
    Loop* loop;
  } data_;
};
static_assert(sizeof(Value) == 16);

/// An ordered sequence.
struct List {
  enum class Flavor : std::uint8_t { list, tuple, group, range, keys, values, items, generator };
  Flavor flavor = Flavor::list;
  std::vector<Value> items;  ///< of a generator: what is left

  bool is_tuple() const { return flavor == Flavor::tuple || flavor == Flavor::group; }
  bool is_generator() const { return flavor == Flavor::generator; }
  /// Whether list[0] means something (not for views of a dict and generators).
  bool is_indexable() const { return flavor <= Flavor::range; }
};

/// A mapping in insertion order. Keys are strings, numbers, none or tuples. Looking up a string takes constant time.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  Value* find(std::string_view key);
  Value* find(Value key);
  void set(Value key, Value value);
  /// Removes `key`, if it is there. O(entries).
  void erase(Value key);

 private:
  static constexpr std::size_t kIndexFrom = 16;  ///< below this a scan is faster
  std::optional<std::size_t> position(Value key);
  std::unordered_map<std::string_view, std::size_t> index_;  ///< string keys, once there are kIndexFrom entries
};

/// Something that can be called: a native function (with the value it is bound to) or a macro (with the scope it was
/// defined in).
struct Function {
  std::string_view name;
  const Native* native = nullptr;
  Value self = {};
  const Macro* macro = nullptr;
  Scope* closure = nullptr;
};

/// The `loop` variable.
struct Loop {
  std::vector<Value> items;
  std::size_t index0 = 0;
  int depth0 = 0;
  const For* recursive = nullptr;  ///< what loop(...) runs
  Scope* closure = nullptr;
  std::optional<std::vector<Value>> changed;  ///< arguments of the last loop.changed(...)
};

/// Variables of one block; macros keep the scope they were defined in.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* find_here(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Limits of one render.
struct Limits {
  std::size_t output_bytes = std::size_t{32} << 20;
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::int64_t work = 50'000'000;            ///< evaluated nodes, plus elements and 16-byte pieces touched
  std::int64_t loop_iterations = 1'000'000;  ///< of all loops together
  int depth = 600;                           ///< nested expressions, statements and macro calls
};

class Arena;
/// Reads a JSON text for the filter from_json; the value keeps nothing of the text but copies in the arena. The
/// template language has no JSON parser of its own: the caller of a render brings one.
using JsonReader = Result<Value> (*)(Arena& arena, std::string_view text);

/// Owns all values of one render and counts what it uses. One thread.
class Arena {
 public:
  Arena(const Limits& limits, JsonReader read_json) : limits_(limits), read_json_(read_json) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const Limits& limits() const { return limits_; }
  JsonReader read_json() const { return read_json_; }

  /// Charges `units` of work. Returns false from the moment a limit is exceeded: see exhausted().
  bool spend(std::size_t units);
  /// Whether `bytes` more fit; if not, the arena is exhausted. Call this before making anything large.
  bool reserve(std::size_t bytes);
  /// The limit that was exceeded, or empty.
  std::string_view exhausted() const { return exhausted_; }
  void exhaust(std::string_view what) {
    if (exhausted_.empty()) exhausted_ = what;
  }

  Value text(std::string&& text);
  Value text(std::string_view text);  ///< copies
  /// `left` followed by `right`, as plain text. Appending to the newest long string extends it in place, so that
  /// building a text piece by piece in a variable takes linear memory.
  Value concat(Value left, Value right);
  List* list(List::Flavor flavor);
  Value list(List::Flavor flavor, std::vector<Value> items);
  Dict* dict();
  Value function(Function function);
  Loop* loop();
  Scope* scope(Scope* parent);

 private:
  struct Extensible {
    std::unique_ptr<char[]> bytes;
    std::size_t used = 0;
    std::size_t capacity = 0;
  };

  Limits limits_;
  JsonReader read_json_;
  std::string_view exhausted_;
  std::int64_t work_ = 0;
  std::size_t bytes_ = 0;
  std::deque<std::string> texts_;
  std::deque<Extensible> extensible_;
  std::unordered_map<const char*, Extensible*> extensible_by_end_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<Loop> loops_;
  std::deque<Scope> scopes_;
};

/// The error of an arena that is exhausted.
tl::unexpected<Error> fail_exhausted(const Arena& arena);

}  // namespace baton::jinja
