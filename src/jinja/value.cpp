/// Values, dicts and the arena of one render.
#include "jinja/value.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "jinja/operators.h"

namespace baton::jinja {

Value Value::boolean(bool value) {
  Value result;
  result.kind_ = Kind::boolean;
  result.data_.boolean = value;
  return result;
}

Value Value::integer(std::int64_t value) {
  Value result;
  result.kind_ = Kind::integer;
  result.data_.integer = value;
  return result;
}

Value Value::floating(double value) {
  Value result;
  result.kind_ = Kind::floating;
  result.data_.floating = value;
  return result;
}

Value Value::string(std::string_view text) {
  Value result;
  result.kind_ = Kind::string;
  result.size_ = static_cast<std::uint32_t>(text.size());
  result.data_.text = text.data();
  return result;
}

Value Value::markup(Value text) {
  text.is_markup_ = true;
  return text;
}

Value Value::markup_like(Value like, Value text) {
  if (text.is(Kind::string)) text.is_markup_ = text.is_markup_ || like.is_markup_;
  return text;
}

Value Value::list(List* list) {
  Value result;
  result.kind_ = Kind::list;
  result.data_.list = list;
  return result;
}

Value Value::dict(Dict* dict) {
  Value result;
  result.kind_ = Kind::dict;
  result.data_.dict = dict;
  return result;
}

Value Value::name_space(Dict* members) {
  Value result = dict(members);
  result.kind_ = Kind::name_space;
  return result;
}

Value Value::function(Function* function) {
  Value result;
  result.kind_ = Kind::function;
  result.data_.function = function;
  return result;
}

Value Value::loop(Loop* loop) {
  Value result;
  result.kind_ = Kind::loop;
  result.data_.loop = loop;
  return result;
}

Value Value::undefined(std::string_view name) { return undefined(name, Kind::undefined); }

Value Value::undefined(std::string_view name, Kind owner) {
  Value result = string(name);
  result.kind_ = Kind::undefined;
  result.owner_ = owner;
  return result;
}

std::optional<std::size_t> Dict::position(Value key) {
  if (key.is(Kind::string)) {
    if (entries.size() >= kIndexFrom) {
      const auto found = index_.find(key.as_string());
      if (found == index_.end()) return std::nullopt;
      return found->second;
    }
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].first.is(Kind::string) && entries[i].first.as_string() == key.as_string()) return i;
    return std::nullopt;
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (same_key(entries[i].first, key)) return i;
  return std::nullopt;
}

Value* Dict::find(std::string_view key) { return find(Value::string(key)); }

Value* Dict::find(Value key) {
  const auto at = position(key);
  return at ? &entries[*at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  if (const auto at = position(key)) {
    entries[*at].second = value;
    return;
  }
  entries.emplace_back(key, value);
  if (entries.size() == kIndexFrom) {
    index_.clear();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].first.is(Kind::string)) index_.emplace(entries[i].first.as_string(), i);
  } else if (entries.size() > kIndexFrom && key.is(Kind::string)) {
    index_.emplace(key.as_string(), entries.size() - 1);
  }
}

void Dict::erase(Value key) {
  const auto at = position(key);
  if (!at) return;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(*at));
  index_.clear();
  if (entries.size() < kIndexFrom) return;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].first.is(Kind::string)) index_.emplace(entries[i].first.as_string(), i);
}

const Value* Scope::find_here(std::string_view name) const {
  for (const auto& [known, value] : variables)
    if (known == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : variables) {
    if (known != name) continue;
    old = value;
    return;
  }
  variables.emplace_back(name, value);
}

bool Arena::spend(std::size_t units) {
  work_ += static_cast<std::int64_t>(units);
  if (work_ > limits_.work) exhaust("work");
  return exhausted_.empty();
}

bool Arena::reserve(std::size_t bytes) {
  if (bytes > limits_.memory_bytes || bytes_ > limits_.memory_bytes - bytes) exhaust("memory");
  return exhausted_.empty();
}

Value Arena::text(std::string&& text) {
  bytes_ += text.size() + sizeof(std::string);
  if (!reserve(0)) return Value::string("");
  return Value::string(texts_.emplace_back(std::move(text)));
}

Value Arena::text(std::string_view text) {
  if (!reserve(text.size())) return Value::string("");
  return this->text(std::string(text));
}

Value Arena::concat(Value left, Value right) {
  constexpr std::size_t kExtendFrom = 1024;  // shorter strings are not worth a block of their own
  const std::string_view head = left.as_string();
  const std::string_view tail = right.as_string();
  if (tail.empty()) return Value::string(head);
  if (head.empty()) return Value::string(tail);
  const std::size_t size = head.size() + tail.size();
  if (!reserve(size)) return Value::string("");
  spend(tail.size() / 16);
  if (size < kExtendFrom) {
    std::string joined;
    joined.reserve(size);
    joined.append(head).append(tail);
    return text(std::move(joined));
  }
  const auto found = extensible_by_end_.find(head.data() + head.size());
  if (found != extensible_by_end_.end() && found->second->used >= head.size() &&
      found->second->capacity - found->second->used >= tail.size()) {
    Extensible* block = found->second;
    extensible_by_end_.erase(found);
    std::memcpy(block->bytes.get() + block->used, tail.data(), tail.size());
    block->used += tail.size();
    extensible_by_end_.emplace(block->bytes.get() + block->used, block);
    return Value::string({block->bytes.get() + block->used - size, size});
  }
  spend(head.size() / 16);
  bytes_ += 2 * size;
  if (!reserve(0)) return Value::string("");
  Extensible& block = extensible_.emplace_back();
  block.capacity = 2 * size;
  block.bytes = std::make_unique<char[]>(block.capacity);
  std::memcpy(block.bytes.get(), head.data(), head.size());
  std::memcpy(block.bytes.get() + head.size(), tail.data(), tail.size());
  block.used = size;
  extensible_by_end_.emplace(block.bytes.get() + size, &block);
  return Value::string({block.bytes.get(), size});
}

List* Arena::list(List::Flavor flavor) {
  bytes_ += sizeof(List);
  List& list = lists_.emplace_back();
  list.flavor = flavor;
  return &list;
}

Value Arena::list(List::Flavor flavor, std::vector<Value> items) {
  spend(items.size());
  bytes_ += items.size() * sizeof(Value);
  reserve(0);
  List* made = list(flavor);
  made->items = std::move(items);
  return Value::list(made);
}

Dict* Arena::dict() {
  bytes_ += sizeof(Dict);
  return &dicts_.emplace_back();
}

Value Arena::function(Function function) {
  bytes_ += sizeof(Function);
  return Value::function(&functions_.emplace_back(std::move(function)));
}

Loop* Arena::loop() {
  bytes_ += sizeof(Loop);
  return &loops_.emplace_back();
}

Scope* Arena::scope(Scope* parent) {
  bytes_ += sizeof(Scope);
  reserve(0);
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return &scope;
}

tl::unexpected<Error> fail_exhausted(const Arena& arena) {
  const Limits& limits = arena.limits();
  std::string detail;
  if (arena.exhausted() == "memory")
    detail = std::to_string(limits.memory_bytes) + " bytes of memory";
  else if (arena.exhausted() == "output")
    detail = std::to_string(limits.output_bytes) + " bytes of output";
  else if (arena.exhausted() == "depth")
    detail = std::to_string(limits.depth) + " levels of nesting";
  else if (arena.exhausted() == "iterations")
    detail = std::to_string(limits.loop_iterations) + " loop iterations";
  else
    detail = std::to_string(limits.work) + " units of work";
  return fail(ErrorCode::too_large, "the template needs more than " + detail);
}

}  // namespace baton::jinja
