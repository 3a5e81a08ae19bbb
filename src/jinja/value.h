/// Values of a template while it renders: 16-byte handles into an arena that belongs to one render call.
///
/// Why an arena: lists, dicts and namespaces have reference semantics in Jinja and may form cycles; a render is short
/// and its memory is bounded, so everything lives until it ends. Handles are trivially copyable and nothing counts
/// references.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/limits/stack_space.h"
#include "core/limits/work_budget.h"
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
  Value() = default;
  static Value none() { return {}; }
  static Value boolean(bool value) { return {Kind::boolean, {.boolean = value}}; }
  static Value integer(std::int64_t value) { return {Kind::integer, {.integer = value}}; }
  static Value floating(double value) { return {Kind::floating, {.floating = value}}; }
  static Value string(std::string_view text) { return {Kind::string, text}; }  ///< does not copy
  /// `text`, which counts as HTML that needs no escaping (Jinja's Markup: the results of `safe` and `escape`).
  static Value markup(Value text) {
    text.is_markup_ = true;
    return text;
  }
  /// A text that is printed as the number it spells: an integer of more than 64 bits.
  static Value digits(Value text) {
    if (text.is(Kind::string)) text.owner_ = Kind::integer;
    return text;
  }
  /// `text`, as markup if it or `like` is.
  static Value markup_like(Value like, Value text) { return text.is(Kind::string) && like.is_markup_ ? markup(text) : text; }
  static Value list(List* list) { return {Kind::list, {.list = list}}; }
  static Value dict(Dict* dict) { return {Kind::dict, {.dict = dict}}; }
  static Value name_space(Dict* members) { return {Kind::name_space, {.dict = members}}; }
  static Value function(Function* function) { return {Kind::function, {.function = function}}; }
  static Value loop(Loop* loop) { return {Kind::loop, {.loop = loop}}; }
  /// The undefined value of `name` (not copied): a variable, or what a value of kind `owner` lacks.
  static Value undefined(std::string_view name, Kind owner = Kind::undefined) {
    Value result(Kind::undefined, name);
    result.owner_ = owner;
    return result;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::floating); }
  bool is_whole() const { return is(Kind::boolean) || is(Kind::integer); }

  bool as_bool() const { return data_.boolean; }
  std::int64_t as_int() const { return is(Kind::boolean) ? std::int64_t{data_.boolean} : data_.integer; }
  double as_double() const { return is(Kind::floating) ? data_.floating : static_cast<double>(as_int()); }
  std::string_view as_string() const { return {data_.text, size_}; }
  bool is_markup() const { return is_markup_; }
  bool is_digits() const { return is(Kind::string) && owner_ == Kind::integer; }
  List* as_list() const { return data_.list; }
  Dict* as_dict() const { return data_.dict; }  ///< of a dict or a namespace
  Function* as_function() const { return data_.function; }
  Loop* as_loop() const { return data_.loop; }
  std::string_view undefined_name() const { return {data_.text, size_}; }
  /// The kind that lacked the name; Kind::undefined when a variable was not set.
  Kind undefined_owner() const { return owner_; }

 private:
  union Data {
    std::int64_t integer = 0;
    bool boolean;
    double floating;
    const char* text;
    List* list;
    Dict* dict;
    Function* function;
    Loop* loop;
  };
  Value(Kind kind, Data data) : kind_(kind), data_(data) {}
  Value(Kind kind, std::string_view text)
      : kind_(kind), size_(static_cast<std::uint32_t>(text.size())), data_{.text = text.data()} {}

  Kind kind_ = Kind::none;
  Kind owner_ = Kind::undefined;  // of a string: integer, if it is digits
  bool is_markup_ = false;
  std::uint32_t size_ = 0;
  Data data_;
};
static_assert(sizeof(Value) == 16);

/// An ordered sequence.
struct List {
  enum class Flavor : std::uint8_t { list, tuple, range, keys, values, items, generator };
  Flavor flavor = Flavor::list;
  std::vector<Value> items;  ///< of a generator: what is left

  bool is_tuple() const { return flavor == Flavor::tuple; }
  bool is_generator() const { return flavor == Flavor::generator; }
  /// Whether list[0] means something (not for views of a dict and generators).
  bool is_indexable() const { return flavor <= Flavor::range; }
};

/// A mapping in insertion order. Keys are what is_hashable allows. Finding one takes O(log(entries)) comparisons of keys,
/// whatever they are: keys that a client chose cannot make it slow, as they could a hash table.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(std::string_view key) const { return find(Value::string(key)); }
  const Value* find(Value key) const;
  /// Returns true if the key is new. Arena::set counts what it takes.
  bool set(Value key, Value value);
  /// Removes `key`, if it is there. O(entries).
  void erase(Value key);

 private:
  static constexpr std::size_t kIndexFrom = 16;  ///< below this a scan is faster
  struct KeyLess {
    bool operator()(Value a, Value b) const;
  };
  using Index = std::map<Value, std::size_t, KeyLess>;
  std::optional<std::size_t> position(Value key) const;
  std::unique_ptr<Index> index_;  ///< key -> place, once there are kIndexFrom entries
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
};

/// Variables of one block; macros keep the scope they were defined in.
struct Scope {
  Scope* parent = nullptr;
  Dict variables;
};

/// Limits of one render.
struct Limits {
  std::size_t output_bytes = std::size_t{32} << 20;
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::int64_t work = 50'000'000;            ///< steps: evaluated nodes, plus elements and 16-byte pieces touched
  std::int64_t loop_iterations = 1'000'000;  ///< of all loops together
  int depth = 600;                           ///< nested expressions, statements and macro calls
};

class Arena;
/// Reads a JSON text for the filter from_json; the value keeps nothing of the text but copies in the arena. The
/// template language has no JSON parser of its own: the caller of a render brings one.
using JsonReader = Result<Value> (*)(Arena& arena, std::string_view text);

/// Owns all values of one render and counts what it uses. One thread.
///
/// What takes more than constant time counts its work by spend, and what keeps memory counts it by take, before it does so.
/// Memory that is needed for a moment is only compared with the limit, by reserve.
class Arena {
 public:
  /// `is_cancelled` says whether the render may end without a result: see WorkBudget.
  Arena(const Limits& limits, JsonReader read_json, std::function<bool()> is_cancelled = {})
      : limits_(limits),
        read_json_(read_json),
        budget_({.steps = limits.work, .bytes = static_cast<std::int64_t>(limits.memory_bytes)}, std::move(is_cancelled)) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const Limits& limits() const { return limits_; }
  JsonReader read_json() const { return read_json_; }

  /// Counts `steps` of work. Returns false from the moment a limit is exceeded: see is_exhausted().
  bool spend(std::size_t steps) {
    if (!meter_.spend(static_cast<std::int64_t>(steps))) exhaust(kBudget);
    return exhausted_.empty();
  }
  /// Counts a loop over the characters of `n_bytes` of text, which takes a few times as long as copying them.
  bool spend_characters(std::size_t n_bytes) { return spend(1 + n_bytes / 4); }
  /// Counts a search or a copy of `n_bytes` of text.
  bool spend_text(std::size_t n_bytes) { return spend(1 + n_bytes / 16); }
  /// Counts what comparing a dict's key takes.
  bool spend_key(Value key);
  /// Counts `bytes` of memory that the render keeps.
  bool take(std::size_t bytes) {
    if (!meter_.write(bytes)) exhaust(kBudget);
    return exhausted_.empty();
  }
  /// Whether `bytes` more fit; if not, the arena is exhausted. Call this before making anything large.
  bool reserve(std::size_t bytes);
  /// The same for `count` things of `size` bytes.
  bool reserve(std::size_t count, std::size_t size);
  /// Whether this thread's stack has room for another level of recursion; if not, the arena is exhausted.
  bool has_stack() {
    if (!stack_.has_room()) exhaust("stack");
    return exhausted_.empty();
  }
  bool is_exhausted() const { return !exhausted_.empty(); }
  /// Ends the render at one of its limits: "output", "depth", "iterations", "stack".
  void exhaust(std::string_view what) {
    if (exhausted_.empty()) exhausted_ = what;
  }
  /// The error of an arena that is exhausted.
  Error error() const;
  /// Steps counted so far.
  std::int64_t work() {
    meter_.settle();
    return budget_.steps();
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
  /// dict[key] = value, and the variable `name` = value in `scope`.
  void set(Dict& dict, Value key, Value value);
  void set(Scope& scope, std::string_view name, Value value) { set(scope.variables, Value::string(name), value); }

 private:
  static constexpr std::string_view kBudget = "budget";
  struct Extensible {
    std::unique_ptr<char[]> bytes;
    std::size_t used = 0;
    std::size_t capacity = 0;
  };

  Limits limits_;
  JsonReader read_json_;
  WorkBudget budget_;
  WorkMeter meter_{budget_};
  StackSpace stack_;
  std::string_view exhausted_;
  std::deque<std::string> texts_;
  std::deque<Extensible> extensible_;
  std::unordered_map<const char*, Extensible*> extensible_by_end_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<Loop> loops_;
  std::deque<Scope> scopes_;
};

inline tl::unexpected<Error> fail_exhausted(const Arena& arena) { return tl::unexpected<Error>(arena.error()); }

}  // namespace baton::jinja
