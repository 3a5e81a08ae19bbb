/// The most likely tokens of a row, from the near lists of its parts: what top-k, top-p, min_p and the draw read in
/// place of the row, wherever the list provably contains every token that may be chosen. All functions are called by
/// the list's threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/adjust.cuh"
#include "kernels/cuda/sampling/params.cuh"
#include "kernels/cuda/sampling/row.cuh"

namespace baton::cuda {

/// What the parts say of the whole row. All threads of a group make it.
template <class Group>
struct RowParts {
  const PartRecord* records;
  std::int32_t n;
  Place best = 0;          ///< the largest place, kNotANumber with a NaN
  LogitKey threshold = 0;  ///< kNoThreshold: there is no list

  __device__ RowParts(const SampleParams& params, RowShared& shared)
      : records(params.parts + static_cast<std::int64_t>(blockIdx.x) * params.n_parts), n(params.n_parts) {
    for (std::int32_t part = Group::thread(); part < n; part += kListThreads) {
      const PartRecord& record = records[part];
      best = record.best > best ? record.best : best;
      threshold = record.threshold > threshold ? record.threshold : threshold;
    }
    threshold = __reduce_max_sync(0xffffffffu, threshold);
    if (Group::thread() % kWarpSize == 0) shared.threshold[Group::thread() / kWarpSize] = threshold;
    best = Group::join(best, shared.best, [](Place a, Place b) { return a > b ? a : b; });
#pragma unroll
    for (int i = 0; i < Group::kWarps; ++i) threshold = shared.threshold[i] > threshold ? shared.threshold[i] : threshold;
  }
  /// Log of the sum of exp over the row. The gather kernel must have been asked for sums.
  __device__ double log_sum(double* sums_of_warps) const {
    const float max = value_of(best);
    double sum = 0;
    for (std::int32_t part = Group::thread(); part < n; part += kListThreads)
      sum += records[part].sum * static_cast<double>(expf(value_of(records[part].best) - max));
    return max + logf(static_cast<float>(Group::join(sum, sums_of_warps, [](double a, double b) { return a + b; })));
  }
};

/// Sorts `n` <= kListThreads places, most likely first. All threads of a group call it.
template <class Group>
__device__ const Place* sort_places(const Place* places, int n, SortShared& shared) {
  // A token's rank is the number of larger ones. Each warp counts its share of them for all tokens.
  constexpr int kEach = kListThreads / kWarpSize;
  const int warp = Group::thread() / kWarpSize;
  const int lane = Group::thread() % kWarpSize;
  Place mine[kEach];
  int n_larger[kEach] = {};
#pragma unroll
  for (int j = 0; j < kEach; ++j) mine[j] = j * kWarpSize < n ? places[j * kWarpSize + lane] : 0;
  for (int i = warp; i < n; i += Group::kWarps) {
    const Place other = places[i];
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (j * kWarpSize < n) n_larger[j] += other > mine[j] ? 1 : 0;
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (j * kWarpSize < n) shared.n_larger[warp][j * kWarpSize + lane] = static_cast<std::uint16_t>(n_larger[j]);
  Group::wait();
  const int token = Group::thread();
  if (token < n) {
    int rank = 0;
#pragma unroll
    for (int i = 0; i < Group::kWarps; ++i) rank += shared.n_larger[i][token];
    shared.sorted[rank] = places[token];
  }
  Group::wait();
  return shared.sorted;
}

/// The list of the row's tokens from a threshold on. `near.n` and `near.n_changed` are 0 at first.
class NearList {
 public:
  __device__ explicit NearList(Shared& of_block)
      : shared(of_block), near(of_block.near), places(near.places), n_places(&near.n) {}
  /// Loads the list of this warp's first part, before it is known how many of its entries count.
  __device__ void load_early(const SampleParams& params) {
    const auto part = static_cast<std::int32_t>(threadIdx.x) / kWarpSize;
    if (part >= params.n_parts) return;
    const Place* list = list_of(params, part);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) early[i] = list[i * kWarpSize + static_cast<int>(threadIdx.x) % kWarpSize];
  }
  /// Reads the lists of the row's parts. After load_early.
  __device__ void load(const SampleParams& params, const RowParts<ListThreads>& row) {
    threshold = row.threshold;
    if (is_valid()) {
      const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
      const auto first_part = static_cast<std::int32_t>(threadIdx.x) / kWarpSize;
      for (std::int32_t part = first_part; part < row.n; part += ListThreads::kWarps) {
        const auto n_here = static_cast<int>(row.records[part].n_near);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          if (i * kWarpSize >= n_here) break;
          Place place = early[i];
          const bool is_entry = i * kWarpSize + lane < n_here;
          if (part != first_part) place = is_entry ? list_of(params, part)[i * kWarpSize + lane] : 0;
          append(is_entry && key_of(place) >= threshold, place);
        }
      }
      finish();
    }
    if (threadIdx.x == 0) near.n_reported = is_valid() ? n : -1;
    n_originals = is_valid() ? n : 0;
  }

  /// Whether the list contains every token from the threshold on.
  __device__ bool is_valid() const { return threshold != kNoThreshold; }
  __device__ int size() const { return n; }
  /// If the token's original logit is in the list, tells all threads of the block, which see it after their barrier.
  __device__ void look_up_original(std::int32_t token) const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= n_originals || id_of(near.places[i]) != token) return;
    shared.original = value_of(near.places[i]);
    shared.has_original = 1;
  }

  /// After the row's logits changed: reads the tokens again, removes those below the threshold or forbidden by the mask,
  /// and adds the ones that reach it now. The list may become invalid.
  __device__ void update(const Logits& logits, const Adjuster& adjuster, const std::uint32_t* mask, std::int32_t last_token) {
    const int i = static_cast<int>(threadIdx.x);
    Place place = i < n ? places[i] : 0;
    if (i < n) place = place_of(logits.values[id_of(place)], id_of(place));
    places = near.changed;
    n_places = &near.n_changed;
    append(i < n && key_of(place) >= threshold && allows(mask, id_of(place)), place);
    if (adjuster.lifts()) {
      bool is_usable = adjuster.lifts_once();
      if (is_usable)
        adjuster.lifted_each(shared, last_token, [&](bool is_token, std::int32_t id, float original) {
          const float now = is_token ? logits.values[id] : 0;
          is_usable &= now < INFINITY;  // neither that nor a NaN
          const Place lifted = place_of(now, id);
          const bool joins =
              is_token && key_of(place_of(original, id)) < threshold && key_of(lifted) >= threshold && allows(mask, id);
          append(joins, lifted);
        });
      if (ListThreads::count(!is_usable) != 0) threshold = kNoThreshold;
    }
    finish();
  }

  /// Chooses a token, or sets shared.work to what the row is needed for. `best` is the largest place if the row has not
  /// been changed, otherwise 0. `is_masked`: the row itself still has forbidden tokens.
  __device__ std::int32_t choose(const SamplingMetadata& sampling, std::int32_t n_generated, Place best, bool is_masked) {
    const int mine = static_cast<int>(threadIdx.x);
    if (mine == 0) shared.best = best;
    if (!is_valid() || n == 0) return leave(RowWork::all);
    const bool is_ordered = sampling.temperature > 0 && (sampling.top_k > 0 || sampling.top_p < 1);
    const Place* tokens = is_ordered ? sort_places<ListThreads>(places, n, near.sort) : places;
    if (best == 0)
      best = is_ordered ? tokens[0]
                        : ListThreads::join(mine < n ? places[mine] : 0, shared.bests_of_warps,
                                            [](Place a, Place b) { return a > b ? a : b; });
    if (mine == 0) shared.best = best;
    if (sampling.temperature <= 0) return id_of(best);
    const Place place = tokens[mine < n ? mine : 0];
    const float max = value_of(best);
    const float scale = 1.0f / sampling.temperature;
    const float scaled = mine < n ? __fmul_rn(value_of(place) - max, scale) : -INFINITY;
    const float least_scaled = sampling.min_p > 0 ? logf(sampling.min_p) : -INFINITY;
    const bool is_likely = mine < n && !(scaled < least_scaled);
    const bool has_all_likely = threshold <= kLeastFiniteKey ||
                                (sampling.min_p > 0 && __fmul_rn(from_monotone_bits(threshold) - max, scale) < least_scaled);
    const NearCut cut = cut_near(ListThreads::count(is_likely), has_all_likely, sampling.top_k);
    if (!cut.is_all && (is_masked || sampling.min_p > 0 || sampling.top_k > 0)) return leave(RowWork::all);
    if (sampling.top_p < 1) {
      if (mine == 0) near.n_left = cut.n_left;
      if (!cut.is_all) return leave(RowWork::total);
      return draw_from_nucleus(sampling, n_generated, max, cut.n_left, 0);
    }
    const Place score = best_of(sampling, n_generated, is_ordered ? mine < cut.n_left : is_likely, scaled, id_of(place));
    if (cut.is_all) return id_of(score);
    if (mine == 0) shared.best_score = value_of(score);
    return leave(RowWork::noise);
  }
  /// After choose has sorted the list: draws from the nucleus of `total` mass, 0: that of the `n_left` tokens that are
  /// left in the list. `max` is the largest logit. May set shared.work, as choose.
  __device__ std::int32_t draw_from_nucleus(const SamplingMetadata& sampling, std::int32_t n_generated, float max, int n_left,
                                            std::uint64_t total) {
    const float scale = 1.0f / sampling.temperature;
    const ByMass mass{max, scale};
    const int mine = static_cast<int>(threadIdx.x);
    const int warp = mine / kWarpSize;
    const Place place = near.sort.sorted[mine < n_left ? mine : 0];
    const std::uint64_t my_mass = mine < n_left ? mass(value_of(place)) : 0;
    std::uint64_t upto = my_mass;  // sum over the sorted tokens up to this one
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const std::uint64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
      if (mine % kWarpSize >= distance) upto += other;
    }
    std::uint64_t* of_warps = shared.masses_of_warps;
    if (mine % kWarpSize == kWarpSize - 1) of_warps[warp] = upto;
    ListThreads::wait();
    std::uint64_t of_all = 0;
#pragma unroll
    for (int i = 0; i < ListThreads::kWarps; ++i) {
      if (i == warp) upto += of_all;
      of_all += of_warps[i];
    }
    const std::uint64_t wanted = wanted_mass(sampling.top_p, total == 0 ? of_all : total);
    if (upto - my_mass < wanted && wanted <= upto) near.rank = static_cast<std::uint32_t>(mine) + 1;
    ListThreads::wait();
    const auto n_nucleus = static_cast<int>(near.rank);
    if (n_nucleus == 0) return leave(RowWork::all);
    return id_of(best_of(sampling, n_generated, mine < n_nucleus, __fmul_rn(value_of(place) - max, scale), id_of(place)));
  }

 private:
  __device__ static LogitKey key_of(Place place) { return static_cast<LogitKey>(place >> kIdBits); }
  __device__ static bool allows(const std::uint32_t* mask, std::int32_t id) {
    return mask == nullptr || (mask[id / 32] >> (id % 32) & 1u) != 0;
  }
  __device__ std::int32_t leave(RowWork work) {
    if (threadIdx.x == 0) shared.work = work;
    return -1;
  }
  /// The place of the largest score, log p + noise.
  __device__ Place best_of(const SamplingMetadata& sampling, std::int32_t n_generated, bool is_left, float scaled,
                           std::int32_t id) {
    // Rounded after each operation, as on a CPU: a fused multiply-add would decide near ties differently.
    const Place score = is_left ? place_of(__fadd_rn(scaled, gumbel_noise(sampling.seed, n_generated, id)), id) : 0;
    return ListThreads::join(score, shared.scores_of_warps, [](Place a, Place b) { return a > b ? a : b; });
  }

  /// Adds the entries of a warp. All of its threads call it.
  __device__ void append(bool is_entry, Place place) {
    const std::uint32_t entries = __ballot_sync(0xffffffffu, is_entry ? 1 : 0);
    if (entries == 0) return;
    const auto lane = static_cast<std::uint32_t>(threadIdx.x) % kWarpSize;
    std::uint32_t at = 0;
    if (lane == 0) at = atomicAdd(n_places, static_cast<std::uint32_t>(__popc(entries)));
    at = __shfl_sync(0xffffffffu, at, 0) + static_cast<std::uint32_t>(__popc(entries & ((1u << lane) - 1)));
    if (is_entry && at < kMostNear) places[at] = place;
  }
  /// Ends a series of append.
  __device__ void finish() {
    ListThreads::wait();
    n = static_cast<int>(*n_places);
    if (n > kMostNear) threshold = kNoThreshold;
    if (is_valid() && n > kListThreads) shorten();
  }
  /// Raises the threshold until at most kListThreads tokens reach it.
  __device__ void shorten() {
    constexpr int kEach = kMostNear / kListThreads;
    Place mine[kEach];
    Place best = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kListThreads;
      mine[j] = i < n ? places[i] : 0;
      best = mine[j] > best ? mine[j] : best;
    }
    // After its barrier all have read.
    best = ListThreads::join(best, shared.bests_of_warps, [](Place a, Place b) { return a > b ? a : b; });
    ThresholdSearch search{threshold, key_of(best) + 1, kListThreads * 3 / 4};
    while (!search.is_done()) {
      int n_reached = 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) n_reached += ListThreads::count(key_of(mine[j]) >= search.middle());
      search.take(n_reached);
    }
    threshold = search.low;
    if (threadIdx.x == 0) *n_places = 0;
    ListThreads::wait();
#pragma unroll
    for (int j = 0; j < kEach; ++j) append(key_of(mine[j]) >= threshold, mine[j]);
    ListThreads::wait();
    n = static_cast<int>(*n_places);
    if (n > kListThreads) threshold = kNoThreshold;  // they tie
  }

  __device__ static const Place* list_of(const SampleParams& params, std::int32_t part) {
    return params.near_lists + (static_cast<std::int64_t>(blockIdx.x) * params.n_parts + part) * kNearRoom;
  }

  static constexpr int kLoads = kNearRoom / kWarpSize;
  Shared& shared;
  NearShared& near;
  Place* places;            ///< near.places, after update near.changed
  std::uint32_t* n_places;  ///< near.n, after update near.n_changed
  LogitKey threshold = kNoThreshold;
  int n = 0;
  int n_originals = 0;  ///< entries of near.places
  Place early[kLoads] = {};
};

}  // namespace baton::cuda
