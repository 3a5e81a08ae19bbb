/// Values, dicts and the arena of one render.
#include "jinja/value.h"

#include <cstring>

#include "jinja/operators.h"

namespace baton::jinja {

bool Dict::KeyLess::operator()(Value a, Value b) const { return compare_keys(a, b) < 0; }

std::optional<std::size_t> Dict::position(Value key) const {
  if (is_nan(key)) return std::nullopt;
  if (index_ != nullptr) {
    const auto found = index_->find(key);
    if (found == index_->end()) return std::nullopt;
    return found->second;
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (same_key(entries[i].first, key)) return i;
  return std::nullopt;
}

const Value* Dict::find(Value key) const {
  const auto at = position(key);
  return at ? &entries[*at].second : nullptr;
}

bool Dict::set(Value key, Value value) {
  if (const auto at = position(key)) {
    entries[*at].second = value;
    return false;
  }
  entries.emplace_back(key, value);
  if (index_ != nullptr) {
    if (!is_nan(key)) index_->emplace(key, entries.size() - 1);
  } else if (entries.size() == kIndexFrom) {
    index_ = std::make_unique<Index>();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (!is_nan(entries[i].first)) index_->emplace(entries[i].first, i);
  }
  return true;
}

void Dict::erase(Value key) {
  const auto at = position(key);
  if (!at) return;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(*at));
  if (index_ == nullptr) return;
  index_->erase(key);
  for (auto& [unused, place] : *index_)
    if (place > *at) --place;
}

bool Arena::spend_key(Value key) {
  std::size_t n_bytes = key.is(Kind::string) ? key.as_string().size() : 0;
  if (key.is(Kind::list)) {
    n_bytes = key.as_list()->items.size() * sizeof(Value);
    for (const Value part : key.as_list()->items) n_bytes += part.is(Kind::string) ? part.as_string().size() : 0;
  }
  return spend_text(n_bytes);
}

bool Arena::reserve(std::size_t bytes) {
  const auto used = static_cast<std::size_t>(budget_.bytes());
  if (bytes > limits_.memory_bytes || used > limits_.memory_bytes - bytes) take(limits_.memory_bytes + 1);
  return exhausted_.empty();
}

bool Arena::reserve(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  return reserve(__builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
}

Value Arena::text(std::string&& text) {
  if (!take(text.size() + sizeof(std::string))) return Value::string("");
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
  spend_text(tail.size());
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
  spend_text(head.size());
  if (!take(2 * size)) return Value::string("");
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
  take(sizeof(List));
  List& list = lists_.emplace_back();
  list.flavor = flavor;
  return &list;
}

Value Arena::list(List::Flavor flavor, std::vector<Value> items) {
  spend(items.size());
  take(items.size() * sizeof(Value));
  List* made = list(flavor);
  made->items = std::move(items);
  return Value::list(made);
}

Dict* Arena::dict() {
  take(sizeof(Dict));
  return &dicts_.emplace_back();
}

Value Arena::function(Function function) {
  take(sizeof(Function));
  return Value::function(&functions_.emplace_back(std::move(function)));
}

Loop* Arena::loop() {
  take(sizeof(Loop));
  return &loops_.emplace_back();
}

Scope* Arena::scope(Scope* parent) {
  take(sizeof(Scope));
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return &scope;
}

void Arena::set(Dict& dict, Value key, Value value) {
  constexpr std::size_t kEntryBytes = 2 * sizeof(Value);
  constexpr std::size_t kIndexedBytes = kEntryBytes + 64;  // with a node of the index
  if (!spend_key(key)) return;
  if (dict.set(key, value)) take(dict.entries.size() < 16 ? kEntryBytes : kIndexedBytes);
}

Error Arena::error() const {
  if (exhausted_ == kBudget) return budget_.error("the template");
  const std::string detail = exhausted_ == "output"  ? std::to_string(limits_.output_bytes) + " bytes of output"
                             : exhausted_ == "depth" ? std::to_string(limits_.depth) + " levels of nesting"
                             : exhausted_ == "stack"
                                 ? "the " + std::to_string(stack_.n_bytes()) + " bytes of its thread's stack"
                                 : std::to_string(limits_.loop_iterations) + " loop iterations";
  return {ErrorCode::too_large, "the template needs more than " + detail};
}

}  // namespace baton::jinja
