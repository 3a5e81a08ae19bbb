/// MessagePack of KV events, and the mirror of a cache.
#include "server/observe/kv_event_batch.h"

#include "io/json.h"

namespace baton {
namespace {

using json::Value;

Value name_of(const BlockHash& hash, KvBlockNames names) {
  if (names == KvBlockNames::integers) return hash.low;
  std::vector<std::uint8_t> bytes;
  for (const std::uint64_t half : {hash.high, hash.low})
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(half >> shift));
  return Value::binary(std::move(bytes));
}

Value text_or_null(const std::string& text) { return text.empty() ? Value() : Value(text); }

/// A field of an event: its name, its value, and whether an object leaves it out.
struct EventField {
  const char* name;
  Value value;
  bool is_default = false;
};

/// The fields that a stored block has, in the order of a list.
std::vector<EventField> stored_fields(const KvEvent& event, const Value& hashes, const KvEventFormat& format) {
  const CacheGroup& group = format.groups.at(static_cast<std::size_t>(event.group));
  Value extra_keys;  // for each block the keys that its hash has beside the tokens, or null
  if (!event.salt.empty()) extra_keys = Value::array_t(event.hashes.size(), Value::array({event.salt}));
  return {{"block_hashes", hashes},
          {"parent_block_hash", event.parent ? name_of(*event.parent, format.block_names) : Value()},
          {"token_ids", event.tokens},
          {"block_size", format.block_len},
          {"lora_id", Value(), true},
          {"medium", format.medium},
          {"lora_name", text_or_null(event.adapter), event.adapter.empty()},
          {"extra_keys", extra_keys, event.salt.empty()},
          {"group_idx", event.group},
          {"kv_cache_spec_kind", group.has_window() ? "sliding_window" : "full_attention"},
          {"kv_cache_spec_sliding_window", group.has_window() ? Value(group.window) : Value(), !group.has_window()}};
}

Value event_value(const KvEvent& event, const KvEventFormat& format) {
  Value hashes = Value::array();
  for (const BlockHash& hash : event.hashes) hashes.push_back(name_of(hash, format.block_names));
  const char* type = "AllBlocksCleared";
  std::vector<EventField> fields;
  if (event.kind == KvEvent::Kind::stored) {
    type = "BlockStored";
    fields = stored_fields(event, hashes, format);
  } else if (event.kind == KvEvent::Kind::removed) {
    type = "BlockRemoved";
    fields = {{"block_hashes", hashes}, {"medium", format.medium}, {"group_idx", event.group}};
  }
  if (format.encoding == KvEventEncoding::array) {
    Value list = Value::array({type});
    for (EventField& field : fields) list.push_back(std::move(field.value));
    return list;
  }
  Value object = {{"type", type}};
  for (EventField& field : fields)
    if (!field.is_default) object[field.name] = std::move(field.value);
  return object;
}

}  // namespace

std::vector<std::uint8_t> encode_kv_events(std::span<const KvEvent> events, double time_s, const KvEventFormat& format) {
  Value list = Value::array();
  for (const KvEvent& event : events) list.push_back(event_value(event, format));
  return Value::to_msgpack(Value::array({time_s, std::move(list), 0}));
}

void KvEventMirror::apply(const KvEvent& event) {
  switch (event.kind) {
    case KvEvent::Kind::cleared:
      blocks_.clear();
      numbers_.clear();
      return;
    case KvEvent::Kind::removed:
      for (const BlockHash& hash : event.hashes) {
        const auto at = numbers_.find({event.group, hash});
        if (at == numbers_.end()) continue;
        blocks_.erase(at->second);
        numbers_.erase(at);
      }
      return;
    case KvEvent::Kind::stored: break;
  }
  std::optional<BlockHash> parent = event.parent;
  const auto len = static_cast<std::size_t>(block_len_);
  for (std::size_t i = 0; i < event.hashes.size(); ++i) {
    const Name name{event.group, event.hashes[i]};
    const auto tokens = std::span(event.tokens).subspan(i * len, len);
    if (numbers_.emplace(name, next_number_).second)
      blocks_.emplace(next_number_++,
                      std::pair(name, Block{parent, {tokens.begin(), tokens.end()}, {event.adapter, event.salt}}));
    parent = event.hashes[i];
  }
}

std::vector<KvEvent> KvEventMirror::snapshot() const {
  KvEventRecorder recorder;
  for (const auto& [number, named] : blocks_) {
    const auto& [name, block] = named;
    recorder.stored(name.first, name.second, block.parent, block.tokens, &block.scope, !block.scope.salt.empty());
  }
  std::vector<KvEvent> events = recorder.take();
  events.insert(events.begin(), KvEvent{KvEvent::Kind::cleared});
  return events;
}

}  // namespace baton
