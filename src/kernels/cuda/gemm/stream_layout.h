/// Which stages of a weight each block of the streaming GEMM multiplies, and which sums a thread then holds. This is pure
/// arithmetic and needs no device.
#pragma once

namespace baton::cuda {

inline constexpr int kStreamTileRows = 64;  ///< weight rows of a tile: wgmma's M
inline constexpr int kStreamStageK = 128;   ///< numbers of each weight row in a stage

/// The stages of all tiles, one tile after the other, in runs of nearly equal length: block b has run b. It depends on
/// the weight's shape and the number of blocks alone.
struct StreamSchedule {
  int n_tiles = 0;
  int k_stages = 0;  ///< of a tile
  int n_blocks = 0;

  /// The first stage of a block's run.
  constexpr int begin(int block) const {
    const int n_stages = n_tiles * k_stages;
    const int rest = n_stages % n_blocks;  // so many runs have one stage more
    return n_stages / n_blocks * block + (block < rest ? block : rest);
  }
};

/// Stages [begin, end) of a tile.
struct StreamSegment {
  int tile = 0;
  int begin = 0;
  int end = 0;
};

/// One stage.
struct StreamStage {
  int tile = 0;
  int k = 0;  ///< in stages
  constexpr void advance(int k_stages) {
    if (++k < k_stages) return;
    k = 0;
    ++tile;
  }
};

/// The segments of a block's run, in order.
class StreamWalk {
 public:
  constexpr StreamWalk(const StreamSchedule& schedule, int block)
      : k_stages_(schedule.k_stages),
        tile_(schedule.begin(block) / schedule.k_stages),
        begin_(schedule.begin(block) % schedule.k_stages),
        n_left_(schedule.begin(block + 1) - schedule.begin(block)) {}

  /// False after the last.
  constexpr bool next(StreamSegment& segment) {
    if (n_left_ <= 0) return false;
    const int n = n_left_ < k_stages_ - begin_ ? n_left_ : k_stages_ - begin_;
    segment = {tile_++, begin_, begin_ + n};
    begin_ = 0;
    n_left_ -= n;
    return true;
  }

 private:
  int k_stages_;
  int tile_;
  int begin_;
  int n_left_;
};

// --- wgmma's sums [64, N]: thread of the warpgroup, group of 8 columns, value i of 4 ---

constexpr int stream_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + (i >> 1) * 8; }
constexpr int stream_column(int thread, int group, int i) { return group * 8 + thread % 4 * 2 + (i & 1); }

// A warp's pair of values (2 half, 2 half + 1) of a group is an 8 x 8 matrix. Transposed over the warp, a lane has two
// neighbouring rows of one column.
constexpr int stream_transposed_row(int thread, int half) { return thread / 32 * 16 + half * 8 + thread % 4 * 2; }
constexpr int stream_transposed_column(int thread, int group) { return group * 8 + thread % 32 / 4; }

}  // namespace baton::cuda
