/// What subscribers of KV events read, and what a mirror of the cache adds up to (server/observe/kv_event_publisher.h).
#include "server/observe/kv_event_publisher.h"

#include <gtest/gtest.h>

#include "io/json.h"

namespace baton {
namespace {

using json::Value;

constexpr BlockHash kFirst{0x0102030405060708, 0x1112131415161718};
constexpr BlockHash kSecond{1, 0xffffffffffffffff};

KvEvent stored() {
  KvEvent event{KvEvent::Kind::stored, 0, {kFirst, kSecond}};
  event.tokens = {5, 6, 7, 8};
  return event;
}
KvEventFormat format_of(KvEventEncoding encoding, KvBlockNames names = KvBlockNames::integers) {
  return {encoding, names, 2, {{.n_blocks = 8}, {.n_blocks = 8, .window = 64}}, "GPU"};
}
Value decoded(const std::vector<KvEvent>& events, const KvEventFormat& format) {
  return Value::from_msgpack(encode_kv_events(events, 12.5, format));
}

TEST(KvEventBatch, as_objects_leaves_defaults_out) {
  const Value batch =
      decoded({stored(), {KvEvent::Kind::removed, 1, {kFirst}}, {KvEvent::Kind::cleared}}, format_of(KvEventEncoding::map));
  EXPECT_EQ(batch, json::parse(R"([12.5, [
      {"type": "BlockStored", "block_hashes": [1230066625199609624, 18446744073709551615], "parent_block_hash": null,
       "token_ids": [5, 6, 7, 8], "block_size": 2, "medium": "GPU", "group_idx": 0, "kv_cache_spec_kind": "full_attention"},
      {"type": "BlockRemoved", "block_hashes": [1230066625199609624], "medium": "GPU", "group_idx": 1},
      {"type": "AllBlocksCleared"}], 0])",
                               "expected")
                       .value());
}

TEST(KvEventBatch, as_lists_has_every_field_in_its_place) {
  KvEvent event = stored();
  event.group = 1;
  event.parent = kSecond;
  event.adapter = "lora";
  event.salt = "pepper";
  const Value batch =
      decoded({event, {KvEvent::Kind::removed, 0, {kFirst}}, {KvEvent::Kind::cleared}}, format_of(KvEventEncoding::array));
  EXPECT_EQ(batch, json::parse(R"([12.5, [
      ["BlockStored", [1230066625199609624, 18446744073709551615], 18446744073709551615, [5, 6, 7, 8], 2, null, "GPU", "lora",
       [["pepper"], ["pepper"]], 1, "sliding_window", 64],
      ["BlockRemoved", [1230066625199609624], "GPU", 0],
      ["AllBlocksCleared"]], 0])",
                               "expected")
                       .value());
}

TEST(KvEventBatch, names_blocks_by_bytes_if_asked_to) {
  const Value batch = decoded({stored()}, format_of(KvEventEncoding::map, KvBlockNames::bytes));
  const Value& name = batch[1][0]["block_hashes"][0];
  ASSERT_TRUE(name.is_binary());
  EXPECT_EQ(name.get_binary(),
            (std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}));
}

TEST(KvEventMirror, a_snapshot_says_what_the_events_said) {
  KvEventMirror mirror(2);
  KvEvent salted{KvEvent::Kind::stored, 0, {{7, 7}}};
  salted.parent = kSecond;
  salted.tokens = {9, 9};
  salted.salt = "pepper";
  KvEvent other{KvEvent::Kind::stored, 1, {kFirst}};
  other.tokens = {5, 6};
  for (const KvEvent& event : {stored(), salted, other, stored()}) mirror.apply(event);
  EXPECT_EQ(mirror.n_blocks(), 4u);
  EXPECT_EQ(mirror.snapshot(), (std::vector<KvEvent>{{KvEvent::Kind::cleared}, stored(), salted, other}));

  mirror.apply({KvEvent::Kind::removed, 0, {kFirst, {99, 99}}});
  KvEvent rest{KvEvent::Kind::stored, 0, {kSecond}};
  rest.parent = kFirst;
  rest.tokens = {7, 8};
  EXPECT_EQ(mirror.snapshot(), (std::vector<KvEvent>{{KvEvent::Kind::cleared}, rest, salted, other}));
  mirror.apply({KvEvent::Kind::cleared});
  EXPECT_EQ(mirror.snapshot(), (std::vector<KvEvent>{{KvEvent::Kind::cleared}}));
}

}  // namespace
}  // namespace baton
