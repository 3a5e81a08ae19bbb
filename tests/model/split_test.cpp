/// How models are split over ranks: the ranks' heads, widths and parts of tensors together are the whole model's.
#include "model/split.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/model_tensors.h"
#include "model/weights.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

using Split = Linear::Split;
using Values = std::vector<float>;
using test::RankBackend;

ModelSpec small_spec(const std::string& more = "") {
  return parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 16,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24, "vocab_size": 37,
      "max_position_embeddings": 16)" +
                              more + "}",
                          "the test")
      .value();
}

std::string refusal(const ModelSpec& spec, int n_ranks) {
  const auto made = split_spec(spec, {0, n_ranks});
  return made ? "no error" : made.error().message;
}

TEST(Split, a_rank_has_its_share_of_heads_and_widths) {
  const ModelSpec whole = small_spec();
  for (const int n_ranks : {2, 4, 8}) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      const auto made = split_spec(whole, {rank, n_ranks});
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->rank, (ModelRank{rank, n_ranks}));
      EXPECT_EQ(made->d_model, 16);
      EXPECT_EQ(made->n_vocab, 37);
      const LayerSpec& layer = made->layers[1];
      EXPECT_EQ(layer.attention.n_heads, 8 / n_ranks);
      EXPECT_EQ(layer.attention.n_kv_heads, 1) << "two KV heads: shared out, or copied to half of the ranks each";
      EXPECT_EQ(layer.feed_forward.d_ff, 24 / n_ranks);
      EXPECT_EQ(kv_heads_of(whole.layers[1].attention, {rank, n_ranks}),
                (IndexRange{rank * 2 / n_ranks, rank * 2 / n_ranks + 1}));
    }
  }
  EXPECT_EQ(split_spec(whole, {0, 1})->layers[0].attention.n_heads, 8) << "one rank has everything";
}

TEST(Split, query_heads_stand_on_the_rank_of_their_kv_head) {
  AttentionSpec attention;
  attention.n_heads = 24;
  for (const auto& [n_kv_heads, n_ranks] : {std::pair{24, 4}, {8, 4}, {4, 4}, {2, 4}, {1, 4}, {2, 8}, {6, 3}, {3, 12}}) {
    attention.n_kv_heads = n_kv_heads;
    const std::int64_t queries_a_head = 24 / n_kv_heads;
    for (int rank = 0; rank < n_ranks; ++rank) {
      const IndexRange queries = query_heads_of(attention, {rank, n_ranks});
      const IndexRange kv = kv_heads_of(attention, {rank, n_ranks});
      EXPECT_EQ(queries.begin / queries_a_head, kv.begin);
      EXPECT_EQ((queries.end - 1) / queries_a_head, kv.end - 1);
      EXPECT_EQ(queries.size() % kv.size(), 0);
    }
  }
}

TEST(Split, what_cannot_be_split_is_named) {
  EXPECT_EQ(refusal(small_spec(), 3),
            "LlamaForCausalLM cannot be split over 3 ranks: its hidden size 16 is not a multiple of it");
  EXPECT_EQ(refusal(small_spec(), 16),
            "LlamaForCausalLM cannot be split over 16 ranks: its 8 query heads cannot be shared out evenly");
  ModelSpec spec = small_spec();
  spec.layers[1].feed_forward.d_ff = 23;
  EXPECT_EQ(
      refusal(spec, 2),
      "LlamaForCausalLM cannot be split over 2 ranks: the width 23 of its feed-forward blocks cannot be shared out evenly");
  spec = small_spec();
  spec.layers[0].attention.n_heads = 12;
  spec.layers[0].attention.n_kv_heads = 3;
  EXPECT_EQ(
      refusal(spec, 2),
      "LlamaForCausalLM cannot be split over 2 ranks: its 3 KV heads can neither be shared out evenly nor be copied to as "
      "many ranks each");
  spec = small_spec();
  spec.layers[0].attention.qk_norm = QkNorm::width;
  EXPECT_EQ(
      refusal(spec, 2),
      "LlamaForCausalLM cannot be split over 2 ranks: its norms of queries and keys are over all heads, and a rank has only "
      "some of them");
  spec = small_spec();
  spec.layers[0].delta = GatedDeltaSpec{};
  EXPECT_EQ(refusal(spec, 2),
            "LlamaForCausalLM cannot be split over 2 ranks: its recurrent layers have states, which ranks do not share yet");
  EXPECT_EQ(split_spec(small_spec(), {0, 3}).error().code, ErrorCode::unsupported);
}

TEST(Split, gathered_parts_are_equally_wide_and_hold_every_row_once) {
  for (const std::int64_t n : {1, 7, 8, 37, 320, 32001}) {
    for (const int n_ranks : {1, 2, 4, 8}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < n_ranks; ++rank) {
        const IndexRange share = gathered_share(n, {rank, n_ranks});
        EXPECT_EQ(share.begin, end);
        EXPECT_LE(share.size(), gathered_width(n, {rank, n_ranks}));
        end = share.end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

/// Rows [begin, end) and columns [first, last) of a matrix with k columns.
Values block(const Values& matrix, std::int64_t k, IndexRange rows, IndexRange columns) {
  Values made;
  for (std::int64_t row = rows.begin; row < rows.end; ++row)
    for (std::int64_t column = columns.begin; column < columns.end; ++column)
      made.push_back(matrix[static_cast<std::size_t>(row * k + column)]);
  return made;
}
Values row_blocks(const Values& matrix, std::int64_t k, std::initializer_list<IndexRange> blocks) {
  Values made;
  for (const IndexRange& rows : blocks) {
    const Values some = block(matrix, k, rows, {0, k});
    made.insert(made.end(), some.begin(), some.end());
  }
  return made;
}

/// Random weights of the whole model and of each rank are parts of the same tensors.
void expect_parts_of_the_whole(const ModelSpec& spec, int n_ranks, const WeightRounding& rounding = {}) {
  RankBackend alone(ModelRank{});
  const auto whole = random_weights(spec, alone, DType::f32, 5, 1, rounding);
  ASSERT_TRUE(whole) << whole.error().message;
  const std::int64_t d = spec.d_model;
  for (int r = 0; r < n_ranks; ++r) {
    const ModelRank rank{r, n_ranks};
    RankBackend backend(rank);
    const auto part = random_weights(spec, backend, DType::f32, 5, 1, rounding);
    ASSERT_TRUE(part) << part.error().message;
    if (!rounding.is_on()) {
      EXPECT_EQ(static_cast<std::int64_t>(part->size_bytes()), weight_bytes(spec, DType::f32, rank).held);
    }
    EXPECT_EQ(test::to_floats(part->embedding),
              block(test::to_floats(whole->embedding), d, {0, spec.n_vocab}, even_share(d, rank)));
    Values head = row_blocks(test::values_of(whole->lm_head.weight()), d, {gathered_share(spec.n_vocab, rank)});
    head.resize(static_cast<std::size_t>(gathered_width(spec.n_vocab, rank) * d), 0.0f);
    EXPECT_EQ(test::values_of(part->lm_head.weight()), head) << "and zeros after the vocabulary";
    EXPECT_EQ(part->lm_head.split(), Split::column);
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      SCOPED_TRACE(i);
      const AttentionSpec& attention = spec.layers[i].attention;
      const std::int64_t size = attention.head_dim;
      const IndexRange q{query_heads_of(attention, rank).begin * size, query_heads_of(attention, rank).end * size};
      const IndexRange kv = kv_heads_of(attention, rank);
      const IndexRange k{attention.q_width() + kv.begin * size, attention.q_width() + kv.end * size};
      const IndexRange v{k.begin + attention.kv_width(), k.end + attention.kv_width()};
      const LayerWeights& all = whole->layers[i];
      const LayerWeights& some = part->layers[i];
      EXPECT_EQ(test::values_of(some.qkv.weight()), row_blocks(test::values_of(all.qkv.weight()), d, {q, k, v}));
      EXPECT_EQ(test::values_of(some.attention_out.weight()),
                block(test::values_of(all.attention_out.weight()), attention.q_width(), {0, d}, q));
      EXPECT_EQ(some.attention_out.split(), Split::row);
      const FeedForwardSpec& feed_forward = spec.layers[i].feed_forward;
      const IndexRange width = even_share(feed_forward.d_ff, rank);
      const IndexRange second{width.begin + feed_forward.d_ff, width.end + feed_forward.d_ff};
      const std::int32_t common = feed_forward.common_d_ff();
      if (feed_forward.has_experts()) {
        const std::int64_t n_logits = feed_forward.n_router_logits();
        Values router = row_blocks(test::values_of(all.router.weight()), d, {gathered_share(n_logits, rank)});
        router.resize(static_cast<std::size_t>(gathered_width(n_logits, rank) * d), 0.0f);
        EXPECT_EQ(test::values_of(some.router.weight()), router);
        EXPECT_EQ(some.choice_bias.weight.shape, all.choice_bias.weight.shape);
        for (std::size_t e = 0; e < static_cast<std::size_t>(feed_forward.n_experts); ++e) {
          EXPECT_EQ(test::values_of(some.expert_up.weights(), e),
                    row_blocks(test::values_of(all.expert_up.weights(), e), d, {width, second}));
          EXPECT_EQ(test::values_of(some.expert_down.weights(), e),
                    block(test::values_of(all.expert_down.weights(), e), feed_forward.d_ff, {0, d}, width));
        }
        EXPECT_EQ(some.expert_down.split(), Split::row);
      }
      ASSERT_EQ(some.up.is_empty(), common == 0);
      if (common == 0) continue;
      const IndexRange of_up = even_share(common, rank);
      EXPECT_EQ(test::values_of(some.up.weight()),
                row_blocks(test::values_of(all.up.weight()), d, {of_up, {of_up.begin + common, of_up.end + common}}));
      EXPECT_EQ(test::values_of(some.down.weight()), block(test::values_of(all.down.weight()), common, {0, d}, of_up));
      EXPECT_EQ(some.down.split(), Split::row);
    }
  }
}

TEST(SplitWeights, are_parts_of_the_whole) {
  for (const int n_ranks : {2, 4}) {
    SCOPED_TRACE(n_ranks);
    expect_parts_of_the_whole(small_spec(), n_ranks);
    expect_parts_of_the_whole(small_spec(R"(, "tie_word_embeddings": true)"), n_ranks);
  }
}

TEST(SplitWeights, that_are_rounded_are_parts_of_the_whole) {
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
    for (const bool ties : {false, true}) {
      SCOPED_TRACE(to_string(scheme));
      const ModelSpec spec = small_spec(ties ? R"(, "tie_word_embeddings": true)" : "");
      expect_parts_of_the_whole(spec, 2, {.scheme = scheme, .group = 16, .rounds_lm_head = true});
    }
}

TEST(SplitWeights, of_fused_tensors_are_parts_of_the_whole) {
  ModelSpec spec = small_spec();
  spec.names.qkv = "model.layers.{}.self_attn.qkv_proj";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  for (const int n_ranks : {2, 4}) expect_parts_of_the_whole(spec, n_ranks);
}

TEST(SplitWeights, of_experts_are_parts_of_every_expert) {
  ModelSpec spec = small_spec();
  spec.names.router = "model.layers.{}.moe.gate";
  spec.names.expert_gate = "model.layers.{}.moe.experts.{}.w1";
  spec.names.expert_up = "model.layers.{}.moe.experts.{}.w3";
  spec.names.expert_down = "model.layers.{}.moe.experts.{}.w2";
  spec.layers[1].feed_forward = {.d_ff = 8, .n_experts = 3, .n_experts_per_row = 2};
  for (const int n_ranks : {2, 4}) expect_parts_of_the_whole(spec, n_ranks);
}

TEST(SplitWeights, of_experts_that_share_tensors_are_parts_of_every_expert) {
  ModelSpec spec = small_spec();
  spec.names.router = "model.layers.{}.moe.router";
  spec.names.expert_gate_up = "model.layers.{}.moe.experts.gate_up";
  spec.names.expert_down = "model.layers.{}.moe.experts.down";
  spec.layers[1].feed_forward = {.d_ff = 8, .has_bias = true, .n_experts = 3, .n_experts_per_row = 2};
  for (const int n_ranks : {2, 4}) {
    expect_parts_of_the_whole(spec, n_ranks);
    expect_parts_of_the_whole(spec, n_ranks, {.scheme = WeightScheme::i8, .group = 16});
  }
  RankBackend whole(ModelRank{});
  const auto weights = random_weights(spec, whole, DType::f32, 5, 1);
  ASSERT_TRUE(weights) << weights.error().message;
  const PackedExperts& up = weights->layers[1].expert_up.weights();
  EXPECT_NE(test::values_of(up, 0), test::values_of(up, 1)) << "each expert has its own";
  const auto bias_of = [](const GroupedLinear& linear) { return linear.args({}, {}, true, {}).bias; };
  EXPECT_EQ(bias_of(weights->layers[1].expert_up).shape, (Shape{3, 16}));
  for (int r = 0; r < 2; ++r) {
    RankBackend backend(ModelRank{r, 2});
    const auto part = random_weights(spec, backend, DType::f32, 5, 1);
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(bias_of(part->layers[1].expert_up).shape, (Shape{3, 8}));
    EXPECT_EQ(bias_of(part->layers[1].expert_down).data != nullptr, r == 0);
  }
}

TEST(SplitWeights, of_random_experts_in_mxfp4_are_parts_of_every_expert) {
  ModelSpec spec = small_spec();
  spec.names.router = "model.layers.{}.moe.router";
  spec.names.expert_gate_up = "model.layers.{}.moe.experts.gate_up";
  spec.names.expert_down = "model.layers.{}.moe.experts.down";
  spec.quantization = {.method = "mxfp4",
                       .statements = {{.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = 32}}};
  spec.layers[1].feed_forward = {.d_ff = 128, .n_experts = 2, .n_experts_per_row = 1};
  RankBackend alone(ModelRank{});
  const auto whole = random_weights(spec, alone, DType::f32, 5, 1);
  ASSERT_TRUE(whole) << whole.error().message;
  const GroupedLinear& all = whole->layers[1].expert_down;
  ASSERT_EQ(all.weights().scheme, WeightScheme::f4);
  EXPECT_NE(test::values_of(all.weights(), 0), test::values_of(all.weights(), 1));
  double squares = 0;
  for (const float value : test::values_of(all.weights(), 0))
    squares += static_cast<double>(value) * static_cast<double>(value);
  const double mean = squares / static_cast<double>(test::values_of(all.weights(), 0).size());
  EXPECT_GT(mean, 0.4 / 128);
  EXPECT_LT(mean, 2.5 / 128);
  for (int r = 0; r < 4; ++r) {
    const ModelRank rank{r, 4};
    RankBackend backend(rank);
    const auto part = random_weights(spec, backend, DType::f32, 5, 1);
    ASSERT_TRUE(part) << part.error().message;
    for (std::size_t e = 0; e < 2; ++e)
      EXPECT_EQ(test::values_of(part->layers[1].expert_down.weights(), e),
                block(test::values_of(all.weights(), e), 128, {0, spec.d_model}, even_share(128, rank)));
  }
}

// Eight rows of the router and the gate's: a rank after the first has the gate alone, the others zeros.
TEST(SplitWeights, of_a_shared_expert_and_its_gate_are_parts_of_both) {
  ModelSpec spec = small_spec();
  spec.names.router = "model.layers.{}.moe.gate";
  spec.names.choice_bias = "model.layers.{}.moe.gate.e_score_correction_bias";
  spec.names.expert_gate = "model.layers.{}.moe.experts.{}.w1";
  spec.names.expert_up = "model.layers.{}.moe.experts.{}.w3";
  spec.names.expert_down = "model.layers.{}.moe.experts.{}.w2";
  spec.names.shared_gate = "model.layers.{}.moe.shared.w1";
  spec.names.shared_up = "model.layers.{}.moe.shared.w3";
  spec.names.shared_down = "model.layers.{}.moe.shared.w2";
  spec.names.shared_expert_gate = "model.layers.{}.moe.shared_gate";
  spec.layers[1].feed_forward = {
      .d_ff = 8, .n_experts = 8, .n_experts_per_row = 2, .has_choice_bias = true, .d_ff_shared = 16, .has_shared_gate = true};
  for (const int n_ranks : {2, 4}) expect_parts_of_the_whole(spec, n_ranks);
}

// Each rank has the heads' parts of queries, of both matrices of heads and of the output, and all of the rest.
TEST(SplitWeights, of_latent_attention_are_parts_by_heads) {
  const LatentSpec latent{8, 8, 2, 4, 3};
  ModelSpec spec = small_spec();
  spec.names.q_a = "model.layers.{}.self_attn.q_a";
  spec.names.q_b = "model.layers.{}.self_attn.q_b";
  spec.names.kv_a = "model.layers.{}.self_attn.kv_a";
  spec.names.kv_b = "model.layers.{}.self_attn.kv_b";
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.n_kv_heads = 1;
    layer.attention.head_dim = latent.rank + latent.rope_dim;
    layer.attention.latent = latent;
  }
  spec.layers[0].attention.latent->q_rank = 0;
  RankBackend alone(ModelRank{});
  const auto whole = random_weights(spec, alone, DType::f32, 5, 1);
  ASSERT_TRUE(whole) << whole.error().message;
  const std::int64_t d = spec.d_model;
  for (int r = 0; r < 4; ++r) {
    const ModelRank rank{r, 4};
    RankBackend backend(rank);
    const auto part = random_weights(spec, backend, DType::f32, 5, 1);
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(static_cast<std::int64_t>(part->size_bytes()), weight_bytes(spec, DType::f32, rank).held);
    const IndexRange heads = even_share(8, rank);
    const auto of_heads = [&](std::int64_t size) { return IndexRange{heads.begin * size, heads.end * size}; };
    const LayerWeights& direct = part->layers[0];
    EXPECT_EQ(test::values_of(direct.qkv.weight()),
              row_blocks(test::values_of(whole->layers[0].qkv.weight()), d, {of_heads(6), {8 * 6, 8 * 6 + 12}}));
    const LayerWeights& all = whole->layers[1];
    const LayerWeights& some = part->layers[1];
    EXPECT_EQ(test::values_of(some.qkv.weight()), test::values_of(all.qkv.weight()));
    EXPECT_EQ(some.qkv.split(), Split::none);
    EXPECT_EQ(test::values_of(some.q_b.weight()), row_blocks(test::values_of(all.q_b.weight()), 8, {of_heads(6)}));
    EXPECT_EQ(test::values_of(some.keys_of_heads.weights()),
              row_blocks(test::values_of(all.keys_of_heads.weights()), 2, {of_heads(8)}));
    EXPECT_EQ(test::values_of(some.values_of_heads.weights()),
              row_blocks(test::values_of(all.values_of_heads.weights()), 8, {of_heads(3)}));
    EXPECT_EQ(test::values_of(some.attention_out.weight()),
              block(test::values_of(all.attention_out.weight()), 24, {0, d}, of_heads(3)));
    const auto split = split_spec(spec, rank);
    ASSERT_TRUE(split) << split.error().message;
    EXPECT_EQ(split->layers[1].attention.n_heads, 2);
    EXPECT_EQ(split->layers[1].attention.n_kv_heads, 1) << "every rank has the whole cache";
  }
}

TEST(SplitWeights, one_rank_adds_the_bias_of_what_the_ranks_add) {
  ModelSpec spec = small_spec();
  spec.has_lm_head_bias = true;
  for (LayerSpec& layer : spec.layers)
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = layer.feed_forward.has_bias = true;
  for (int r = 0; r < 2; ++r) {
    RankBackend backend(ModelRank{r, 2});
    const auto part = random_weights(spec, backend, DType::f32, 5, 1);
    ASSERT_TRUE(part) << part.error().message;
    const LayerWeights& layer = part->layers[1];
    EXPECT_EQ(layer.attention_out.bias().data != nullptr, r == 0);
    EXPECT_EQ(layer.down.bias().data != nullptr, r == 0);
    EXPECT_EQ(layer.qkv.bias().shape, (Shape{4 * 4 + 2 * 4}));
    EXPECT_EQ(layer.up.bias().shape, (Shape{2 * 12}));
    EXPECT_EQ(part->lm_head.bias().shape, (Shape{24})) << "37 rows on two ranks, in eights";
  }
}

// The list of a checkpoint's tensors is the whole model's.
TEST(SplitWeights, need_the_same_tensors_of_a_checkpoint) {
  const ModelSpec spec = small_spec();
  for (int r = 0; r < 2; ++r) {
    std::vector<std::string> names;
    for (const TensorPart& part : tensor_parts(spec, {r, 2})) names.push_back(part.tensor.name);
    std::vector<std::string> expected;
    for (const ExpectedTensor& tensor : expected_tensors(spec)) expected.push_back(tensor.name);
    EXPECT_EQ(names, expected);
  }
}

}  // namespace
}  // namespace baton
