/// latent_append on every backend: norms and rotations compared with double precision, the places of keys in the storage, and the
/// values that attention reads there.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan/attention_plan.h"
#include "support/kv_shapes.h"
#include "support/rope_run.h"
#include "support/step_builder.h"

namespace baton::testing {
namespace {

struct LatentCase {
  LatentKeys keys{512, 64};
  DType kv_dtype = DType::bf16;
  DType x_dtype = DType::bf16;
  DType q_dtype = DType::bf16;
  int n_heads = 4;
  int nope_dim = 128;
  bool is_one_tensor = false;  ///< the queries stand before the latent vector in one row, as without q_lora_rank
  bool pairs_are_neighbours = true;
  bool scales_queries = false;
  int block_len = 32;
  int n_blocks = 4;

  int x_stride() const { return nope_dim + keys.rotary_dim; }
  /// The columns before a row's latent vector.
  int first() const { return is_one_tensor ? n_heads * x_stride() : 40; }
  int compressed_width() const { return first() + keys.head_dim() + 3; }
  KvShape kv_shape() const {
    KvShape shape{2, n_blocks, block_len, 1, keys.head_dim(), kv_dtype};
    shape.latent_dim = keys.latent_dim;
    return shape;
  }
};

std::string describe(const TestBackend& test, const LatentCase& of) {
  return test.name + ", " + std::to_string(of.keys.latent_dim) + " + " + std::to_string(of.keys.rotary_dim) + ", " +
         std::to_string(of.n_heads) + " heads, " + std::string(to_string(of.x_dtype)) + " to " +
         std::string(to_string(of.q_dtype)) + " and " + std::string(to_string(of.kv_dtype)) +
         (of.is_one_tensor ? ", one tensor" : "") + (of.pairs_are_neighbours ? ", neighbours" : ", halves") +
         (of.scales_queries ? ", scaled queries" : "");
}

/// What latent_append reads of some rows.
struct LatentInputs {
  LatentInputs(const LatentCase& of, std::int64_t n_rows)
      : compressed(drawn(of, n_rows, of.compressed_width(), 3)),
        x(of.is_one_tensor ? compressed : drawn(of, n_rows, of.n_heads * of.x_stride() + 5, 4)),
        q(of.q_dtype, {n_rows, of.n_heads, of.keys.head_dim()}),
        norm(DType::f32, {of.keys.latent_dim}) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    // Their latent parts are there already; the others are NaN.
    for (std::int64_t head = 0; head < n_rows * of.n_heads; ++head)
      for (int i = 0; i < of.keys.latent_dim; ++i) q.set(head * of.keys.head_dim() + i, normal(random));
    for (int i = 0; i < of.keys.latent_dim; ++i) norm.set(i, 1 + 0.25f * normal(random));
  }
  static HostTensor drawn(const LatentCase& of, std::int64_t n_rows, std::int64_t width, std::uint32_t seed) {
    std::mt19937 random(seed);
    return random_tensor(random, of.x_dtype, {n_rows, width});
  }
  /// The inputs of one row.
  LatentInputs row(std::int64_t index) const {
    LatentInputs own = *this;
    for (auto [to, from] : {std::pair{&own.compressed, &compressed}, {&own.x, &x}, {&own.q, &q}}) {
      Shape shape = from->shape.rank() == 2 ? Shape{1, from->shape[1]} : Shape{1, from->shape[1], from->shape[2]};
      *to = HostTensor(from->dtype, shape);
      std::memcpy(to->bytes.data(), from->view().rows(index, index + 1).data, to->bytes.size());
    }
    return own;
  }

  HostTensor compressed, x, q, norm;
};

/// Rows at given positions and KV indices, and their results. The storage is NaN before.
class LatentRun {
 public:
  LatentRun(Backend& backend, const LatentCase& of, std::vector<TokenRow> token_rows, std::vector<std::int64_t> at_indices,
            LatentInputs from)
      : shape(of),
        rows(std::move(token_rows)),
        kv_indices(std::move(at_indices)),
        in(std::move(from)),
        q(in.q),
        kv(storage(backend, of)) {
    const OnDevice compressed(backend, in.compressed), x(backend, in.x), norm(backend, in.norm), device_q(backend, in.q),
        cos(backend, angles(of.keys.rotary_dim, false)), sin(backend, angles(of.keys.rotary_dim, true)),
        factors(backend, query_factors()), device_rows(backend, rows_tensor(rows));
    const StepInput step = kv_step(kv_indices);
    LatentAppendArgs args;
    args.compressed = compressed.view();
    args.x = of.is_one_tensor ? compressed.view() : x.view();
    args.x_stride = of.x_stride();
    args.x_first = of.nope_dim;
    args.first = of.first();
    args.norm = norm.view();
    args.norm_eps = kNormEps;
    args.q = device_q.view();
    args.rope = {cos.view(), sin.view()};
    if (of.scales_queries) args.rope.q_factor = factors.view();
    args.pairs_are_neighbours = of.pairs_are_neighbours;
    args.rows = device_rows.view();
    args.step = backend.upload_step(step);
    args.layer = kLayer;
    args.kv = kv.get();
    latent_append(backend, args);
    q = device_q.to_host();
  }
  LatentRun(Backend& backend, const LatentCase& of, const std::vector<TokenRow>& token_rows,
            const std::vector<std::int64_t>& at_indices)
      : LatentRun(backend, of, token_rows, at_indices, LatentInputs(of, static_cast<std::int64_t>(token_rows.size()))) {}

  static std::unique_ptr<KvStorage> storage(Backend& backend, const LatentCase& of) {
    auto made = backend.make_kv_storage(of.kv_shape());
    check(made.has_value(), [&] { return made.error().message; });
    (*made)->fill_bytes(0xff);
    return std::move(*made);
  }

  /// Element i of `of` numbers from `first` on, rotated by the position of a row.
  double rotated(const HostTensor& from, std::int64_t first, std::size_t row, int i) const {
    const int half = shape.keys.rotary_dim / 2;
    const bool near = shape.pairs_are_neighbours;
    const int pair = near ? i / 2 : i % half;
    const bool is_second = near ? i % 2 == 1 : i >= half;
    const double a = from.at(first + (near ? 2 * pair : pair));
    const double b = from.at(first + (near ? 2 * pair + 1 : pair + half));
    const std::int64_t angle = static_cast<std::int64_t>(rows[row].position) * half + pair;
    const double cos = angles(shape.keys.rotary_dim, false).at(angle);
    const double sin = angles(shape.keys.rotary_dim, true).at(angle);
    return is_second ? b * cos + a * sin : a * cos - b * sin;
  }
  /// What is expected of a query.
  double query(std::size_t row, int head, int i) const {
    const double factor = shape.scales_queries ? query_factors().at(rows[row].position) : 1;
    const int latent = shape.keys.latent_dim;
    if (i < latent) return in.q.at(query_index(row, head, i)) * factor;
    const HostTensor& x = shape.is_one_tensor ? in.compressed : in.x;
    const std::int64_t first = static_cast<std::int64_t>(row) * x.shape[1] + head * shape.x_stride() + shape.nope_dim;
    return rotated(x, first, row, i - latent) * factor;
  }
  std::int64_t query_index(std::size_t row, int head, int i) const {
    return (static_cast<std::int64_t>(row) * shape.n_heads + head) * shape.keys.head_dim() + i;
  }
  /// What is expected of all elements of a key.
  std::vector<double> key(std::size_t row) const {
    const std::int64_t first = static_cast<std::int64_t>(row) * shape.compressed_width() + shape.first();
    const int latent = shape.keys.latent_dim;
    double squares = 0;
    for (int i = 0; i < latent; ++i) squares += std::pow(in.compressed.at(first + i), 2);
    const double factor = 1 / std::sqrt(squares / latent + static_cast<double>(kNormEps));
    std::vector<double> numbers;
    for (int i = 0; i < latent; ++i) numbers.push_back(in.compressed.at(first + i) * factor * in.norm.at(i));
    for (int i = 0; i < shape.keys.rotary_dim; ++i) numbers.push_back(rotated(in.compressed, first + latent, row, i));
    return numbers;
  }
  /// The canonical form of a block, of which the tested layer is the second.
  const std::vector<std::byte>& block(std::int32_t number) {
    auto [found, is_new] = blocks_.try_emplace(number);
    if (is_new) {
      found->second.resize(static_cast<std::size_t>(kv->shape().block_bytes()));
      kv->export_block(BlockId{number}, {found->second.data(), DType::u8, {kv->shape().block_bytes()}});
    }
    return found->second;
  }
  /// The first byte of a key in this form.
  std::size_t key_at(std::int64_t kv_index) const {
    return static_cast<std::size_t>((kLayer * shape.block_len + kv_index % shape.block_len) * shape.keys.head_dim()) *
           size_bytes(shape.kv_dtype);
  }
  double stored(std::int64_t kv_index, int i) {
    return visit_float(shape.kv_dtype, [&]<class T>(T number) {
      const auto& bytes = block(static_cast<std::int32_t>(kv_index / shape.block_len));
      std::memcpy(&number, bytes.data() + key_at(kv_index) + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
      return static_cast<double>(static_cast<float>(number));
    });
  }

  LatentCase shape;
  std::vector<TokenRow> rows;
  std::vector<std::int64_t> kv_indices;
  LatentInputs in;
  HostTensor q;
  std::unique_ptr<KvStorage> kv;

 private:
  std::map<std::int32_t, std::vector<std::byte>> blocks_;
};

/// A sum, a root and a few products of magnitude 4 in f32, all times a factor of at most 2; then one rounding, by half the distance
/// of neighbours. f16 keeps steps of 2^-24 below 2^-14.
double latent_bound(double expected, DType dtype) {
  return 0x1p-17 + std::abs(expected) * epsilon(dtype) / 2 + (dtype == DType::f16 ? 0x1p-25 : 0);
}

void expect_appended(const std::string& what, LatentRun& run) {
  const LatentCase& shape = run.shape;
  for (std::size_t row = 0; row < run.rows.size(); ++row) {
    for (int head = 0; head < shape.n_heads; ++head)
      for (int i = 0; i < shape.keys.head_dim(); ++i) {
        const std::int64_t index = run.query_index(row, head, i);
        const double expected = run.query(row, head, i);
        const bool is_kept = i < shape.keys.latent_dim && !shape.scales_queries;
        ASSERT_NEAR(run.q.at(index), expected, is_kept ? 0 : latent_bound(expected, shape.q_dtype))
            << what << ", row " << row << ", head " << head << ", element " << i;
      }
    if (run.kv_indices[row] == kNoKvIndex) continue;
    const std::vector<double> key = run.key(row);
    for (int i = 0; i < shape.keys.head_dim(); ++i) {
      const double expected = key[static_cast<std::size_t>(i)];
      ASSERT_NEAR(run.stored(run.kv_indices[row], i), expected, latent_bound(expected, shape.kv_dtype))
          << what << ", row " << row << ", element " << i << " of the key";
    }
  }
}

const std::vector<TokenRow> kLatentRows = {{0, 0, 0, 1}, {0, 1, 0, 2}, {1, 17, 0, 18}, {2, 4999, 0, 5000}};
const std::vector<std::int64_t> kLatentIndices = {0, 33, 127, kNoKvIndex};

/// Calls body(test, shape) for each backend, and each dtype and size of latent keys that it stores.
template <class Body>
void for_each_latent(LatentCase shape, const Body& body) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const LatentKeys& keys : stored_latents(test, kv_dtype)) {
        shape.kv_dtype = shape.q_dtype = kv_dtype;
        shape.keys = keys;
        body(test, shape);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(LatentAppend, rotates_queries_and_stores_keys_at_their_kv_indices) {
  for_each_latent({}, [](const TestBackend& test, LatentCase shape) {
    for (const bool pairs_are_neighbours : {true, false})
      for (const bool scales_queries : {false, true})
        for (const auto& [n_heads, nope_dim, x_dtype, q_dtype] : {std::tuple{4, 128, DType::f32, DType::f32},
                                                                  {20, 192, DType::bf16, DType::bf16},
                                                                  {1, 64, DType::f16, DType::f16},
                                                                  {3, 2, DType::f32, DType::bf16},
                                                                  {2, 0, DType::bf16, DType::f32}}) {
          shape.pairs_are_neighbours = pairs_are_neighbours;
          shape.scales_queries = scales_queries;
          shape.n_heads = n_heads;
          shape.nope_dim = nope_dim;
          shape.x_dtype = x_dtype;
          shape.q_dtype = q_dtype;
          LatentRun run(test.backend, shape, kLatentRows, kLatentIndices);
          expect_appended(describe(test, shape), run);
          if (::testing::Test::HasFatalFailure()) return;
        }
  });
}

// As of DeepSeek-V2-Lite, which has no q_lora_rank: 16 heads of 128 + 64 elements, then the latent vector.
TEST(LatentAppend, takes_queries_and_latent_vectors_of_one_tensor) {
  for_each_latent({.n_heads = 16, .is_one_tensor = true}, [](const TestBackend& test, LatentCase shape) {
    for (const DType x_dtype : {DType::f32, DType::bf16, DType::f16}) {
      shape.x_dtype = x_dtype;
      LatentRun run(test.backend, shape, kLatentRows, kLatentIndices);
      expect_appended(describe(test, shape), run);
    }
  });
}

TEST(LatentAppend, stores_hundreds_of_rows_in_any_order_and_touches_nothing_else) {
  for_each_latent({.n_heads = 2, .nope_dim = 64, .n_blocks = 12}, [](const TestBackend& test, const LatentCase& shape) {
    std::mt19937 random(11);
    std::vector<std::int64_t> kv_indices;
    for (int kv_index = 0; kv_index < shape.n_blocks * shape.block_len; ++kv_index) kv_indices.push_back(kv_index);
    std::shuffle(kv_indices.begin(), kv_indices.end(), random);
    kv_indices.resize(301);
    for (const std::size_t row : {5u, 77u, 300u}) kv_indices[row] = kNoKvIndex;
    std::vector<TokenRow> rows;
    for (int row = 0; row < 301; ++row) rows.push_back({0, (row * 37) % kPositions, 0, 1});
    LatentRun run(test.backend, shape, rows, kv_indices);
    expect_appended(describe(test, shape), run);
    // After the rows' positions are set back to ones, the whole storage is ones.
    std::map<std::int32_t, std::vector<std::byte>> left;
    for (int block = 0; block < shape.n_blocks; ++block) left[block] = run.block(block);
    for (const std::int64_t kv_index : kv_indices)
      if (kv_index != kNoKvIndex)
        std::memset(left[static_cast<std::int32_t>(kv_index / shape.block_len)].data() + run.key_at(kv_index), 0xff,
                    static_cast<std::size_t>(shape.keys.head_dim()) * size_bytes(shape.kv_dtype));
    for (const auto& [block, bytes] : left)
      ASSERT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xff}; }))
          << describe(test, shape) << ", block " << block;
  });
}

TEST(LatentAppend, stores_nothing_for_rows_without_a_kv_index_and_takes_a_step_without_rows) {
  for_each_latent({}, [](const TestBackend& test, const LatentCase& shape) {
    for (const std::vector<TokenRow>& rows : {std::vector<TokenRow>{}, {{0, 5, 0, 6}}}) {
      LatentRun run(test.backend, shape, rows, std::vector<std::int64_t>(rows.size(), kNoKvIndex));
      expect_appended(describe(test, shape), run);
      for (int block = 0; block < shape.n_blocks; ++block)
        ASSERT_TRUE(std::ranges::all_of(run.block(block), [](std::byte byte) { return byte == std::byte{0xff}; }))
            << describe(test, shape);
    }
  });
}

TEST(LatentAppend, a_row_is_the_same_bits_in_any_company) {
  for_each_latent({.n_heads = 20, .scales_queries = true}, [](const TestBackend& test, const LatentCase& shape) {
    LatentRun together(test.backend, shape, kLatentRows, {0, 33, 64, 127});
    for (std::size_t row = 0; row < 4; ++row) {
      const auto begin = static_cast<std::int64_t>(row);
      LatentRun alone(test.backend, shape, {kLatentRows[row]}, {together.kv_indices[row]}, together.in.row(begin));
      EXPECT_EQ(std::memcmp(alone.q.bytes.data(), together.q.view().rows(begin, begin + 1).data, alone.q.bytes.size()), 0)
          << describe(test, shape);
      for (int i = 0; i < shape.keys.head_dim(); ++i)
        ASSERT_EQ(alone.stored(alone.kv_indices[0], i), together.stored(alone.kv_indices[0], i)) << describe(test, shape);
    }
  });
}

/// The first row sees only itself, so its output is its key's beginning, whatever was there before.
TEST(LatentAppend, attention_reads_its_values_and_no_poison) {
  constexpr int kLen = 5;
  for_each_latent({}, [](const TestBackend& test, LatentCase shape) {
    shape.x_dtype = shape.kv_dtype;
    const int latent = shape.keys.latent_dim;
    const std::vector<BlockId> blocks = {BlockId{3}};
    const StepSequence sequence{{SlotId{0}, blocks, kLen, kLen}, std::vector<TokenId>(kLen, 1), false, {}};
    AttentionShape plan_shape{
        shape.n_heads, 1, shape.keys.head_dim(), static_cast<std::int32_t>(size_bytes(shape.kv_dtype)), 0, shape.block_len};
    plan_shape.latent_dim = latent;
    AttentionPlanOptions options;
    options.costs = test.backend.tuning().attention_costs;
    options.deals_pairs = test.backend.capabilities().deals_pairs;
    StepInput step = pack_step(std::span(&sequence, 1), plan_shape, options);
    const auto planned = step.view().span<TokenRow>(SectionKind::rows);
    const auto kv_indices = step.view().span<std::int64_t>(SectionKind::kv_indices);
    LatentRun run(test.backend, shape, {planned.begin(), planned.end()}, {kv_indices.begin(), kv_indices.end()});
    const std::int64_t n = std::max(1, step.group(0).n_partials);
    const OnDevice q(test.backend, run.q), out(test.backend, HostTensor(DType::f32, {kLen, shape.n_heads, latent})),
        rows(test.backend, rows_tensor(run.rows)), o(test.backend, HostTensor(DType::f32, {n, shape.n_heads, latent})),
        m(test.backend, HostTensor(DType::f32, {n, shape.n_heads})),
        l(test.backend, HostTensor(DType::f32, {n, shape.n_heads}));
    AttentionArgs args;
    args.q = q.view();
    args.out = out.view();
    args.partials = {o.view(), m.view(), l.view()};
    args.rows = rows.view();
    args.step = test.backend.upload_step(step);
    args.layer = kLayer;
    args.kv = run.kv.get();
    args.scale = 0.05f;
    args.merge = true;
    attention(test.backend, args);
    const HostTensor got = out.to_host();
    for (std::int64_t i = 0; i < got.shape.n_elements(); ++i)
      ASSERT_TRUE(std::isfinite(got.at(i))) << describe(test, shape) << ", number " << i;
    for (int head = 0; head < shape.n_heads; ++head)
      for (int i = 0; i < latent; ++i) {
        const double value = run.stored(run.kv_indices[0], i);
        ASSERT_NEAR(got.at(head * latent + i), value, 1e-5 * std::abs(value)) << describe(test, shape) << ", head " << head;
      }
  });
}

TEST(LatentAppend, a_captured_graph_reads_slots_and_rows_of_the_step_that_is_there) {
  for_each_latent({}, [](const TestBackend& test, const LatentCase& shape) {
    const std::unique_ptr<KvStorage> kv = LatentRun::storage(test.backend, shape);
    const LatentInputs in(shape, 4);
    const OnDevice compressed(test.backend, in.compressed), x(test.backend, in.x), norm(test.backend, in.norm),
        q(test.backend, in.q), cos(test.backend, angles(shape.keys.rotary_dim, false)),
        sin(test.backend, angles(shape.keys.rotary_dim, true)), rows(test.backend, rows_tensor(kLatentRows));
    const StepInput first = kv_step({0, 1, 2, 3});
    // A captured launch keeps its number of rows; the step may have fewer. The CPU's calls keep their captured shapes.
    StepInput second = kv_step({70, kNoKvIndex, 65, 80}, 11);
    if (test.is_cuda()) second.header().n_rows = 3;
    second.finish();
    StepView view = test.backend.upload_step(first);
    LatentAppendArgs args;
    args.compressed = compressed.view();
    args.x = x.view();
    args.x_stride = shape.x_stride();
    args.x_first = shape.nope_dim;
    args.first = shape.first();
    args.norm = norm.view();
    args.q = q.view();
    args.rope = {cos.view(), sin.view()};
    args.rows = rows.view();
    args.step = view;
    args.layer = kLayer;
    args.kv = kv.get();
    auto graph = test.backend.capture([&] {
      args.step = view;
      latent_append(test.backend, args);
    });
    ASSERT_TRUE(graph) << graph.error().message;
    view = test.backend.upload_step(second);
    (*graph)->replay();
    test.backend.synchronize();
    const auto is_written = [&](std::int64_t kv_index) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(kv->shape().block_bytes()));
      kv->export_block(BlockId{static_cast<std::int32_t>(kv_index / shape.block_len)},
                       {bytes.data(), DType::u8, {kv->shape().block_bytes()}});
      const auto at =
          static_cast<std::size_t>((kLayer * shape.block_len + kv_index % shape.block_len) * shape.keys.head_dim()) *
          size_bytes(shape.kv_dtype);
      return bytes[at] != std::byte{0xff} || bytes[at + 1] != std::byte{0xff};
    };
    for (const std::int64_t kv_index : {0, 1, 2, 3, 66, 81})
      EXPECT_FALSE(is_written(kv_index)) << describe(test, shape) << ", " << kv_index;
    EXPECT_TRUE(is_written(70)) << describe(test, shape);
    EXPECT_TRUE(is_written(65)) << describe(test, shape);
    EXPECT_EQ(is_written(80), !test.is_cuda()) << describe(test, shape);
  });
}

}  // namespace
}  // namespace baton::testing
