/// Rounds and copies tensor after tensor.
#include "load/quantize/quantize_model.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/parallel.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "load/byte_text.h"
#include "load/quantize/checkpoint_plan.h"
#include "load/quantize/shard_writer.h"
#include "model/config.h"
#include "model/source/safetensors.h"
#include "model/weights.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWeightsAtOnce = 1 << 22;
constexpr std::size_t kBytesAtOnce = std::size_t{16} << 20;

/// Ends of names of files that hold weights, which are not copied.
constexpr auto kWeightFiles =
    std::to_array<std::string_view>({".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth",
                                     ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx"});

tl::unexpected<Error> cannot(std::string_view what, const fs::path& path, const std::error_code& error) {
  return fail(ErrorCode::io, fmt::format("cannot {} {}: {}", what, path.string(), error.message()));
}

/// The folder that is filled. It is removed unless it got its name.
class PartFolder {
 public:
  static Result<PartFolder> create(const fs::path& out) {
    fs::path part = out;
    part += ".part";
    std::error_code error;
    if (out.empty()) return fail(ErrorCode::invalid_request, "the folder to write has no name", "out");
    const fs::file_type out_type = fs::symlink_status(out, error).type();
    if (out_type == fs::file_type::none) return cannot("make the folder", out, error);
    if (out_type != fs::file_type::not_found)
      return fail(ErrorCode::invalid_request, fmt::format("{} exists already; name a new folder", out.string()), "out");
    const fs::file_type part_type = fs::symlink_status(part, error).type();
    if (part_type == fs::file_type::none) return cannot("make the folder", part, error);
    if (part_type != fs::file_type::not_found)
      return fail(ErrorCode::invalid_request,
                  fmt::format("{} exists: another run fills it, or was killed; remove it to begin again", part.string()),
                  "out");
    error.clear();
    if (!fs::create_directory(part, error)) return cannot("make the folder", part, error);
    return PartFolder(out, part);
  }
  PartFolder(PartFolder&& other) noexcept : out_(std::move(other.out_)), part_(std::exchange(other.part_, {})) {}
  PartFolder& operator=(PartFolder&&) = delete;
  ~PartFolder() {
    std::error_code ignored;
    if (!part_.empty()) fs::remove_all(part_, ignored);
  }

  const fs::path& path() const { return part_; }
  Result<void> keep() {
    BATON_TRY_VOID(sync_folder(part_));
    std::error_code error;
    if (fs::symlink_status(out_, error).type() != fs::file_type::not_found)
      return fail(ErrorCode::invalid_request, fmt::format("{} was made meanwhile", out_.string()), "out");
    fs::rename(part_, out_, error);
    if (error) return cannot("name", out_, error);
    part_.clear();
    return {};
  }

 private:
  PartFolder(fs::path out, fs::path part) : out_(std::move(out)), part_(std::move(part)) {}

  fs::path out_, part_;
};

/// Refuses an output folder below the model's own.
Result<void> check_outside(const fs::path& model, const fs::path& out) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(model, error);
  const fs::path made = fs::weakly_canonical(fs::absolute(out, error), error);
  if (error || std::ranges::mismatch(folder, made).in1 != folder.end()) return {};
  return fail(ErrorCode::invalid_request,
              fmt::format("{} is inside the model's folder {}; name a folder outside of it", out.string(), model.string()),
              "out");
}

/// Refuses a group that was asked for and divides no row.
Result<void> check_group(const CheckpointPlan& plan, const WeightRounding& rounding) {
  if (plan.modules_by.contains(rounding.group)) return {};
  std::set<std::int64_t> lengths;
  for (const ShardPlan& shard : plan.shards)
    for (const TensorJob& job : shard.jobs)
      if (job.is_rounded) lengths.insert(job.matrix.shape[1]);
  if (lengths.contains(rounding.group)) return {};
  return fail(ErrorCode::invalid_request,
              fmt::format("--group {}: it divides the rows of no matrix; they have {} columns", rounding.group,
                          fmt::join(lengths, ", ")),
              "group");
}

bool holds_weights(const fs::path& file) {
  const std::string name = file.filename().string();
  return std::ranges::any_of(kWeightFiles, [&](std::string_view end) { return name.ends_with(end); });
}

/// The files beside weights and configuration.
std::vector<fs::path> other_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_regular_file(error) && !holds_weights(entry.path()) && entry.path().filename() != "config.json")
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Compares what is needed with what the disk has, before anything is written.
Result<void> check_room(const fs::path& folder, const CheckpointPlan& plan, const std::vector<fs::path>& others) {
  std::error_code error;
  std::int64_t needed = plan.size_bytes;
  for (const fs::path& file : others) needed += static_cast<std::int64_t>(fs::file_size(file, error));
  const auto free = static_cast<std::int64_t>(fs::space(folder, error).available);
  if (error || needed <= free) return {};  // writing tells
  return fail(ErrorCode::io, fmt::format("the checkpoint needs {} bytes ({}), and the disk of {} has {} ({}) free", needed,
                                         byte_text(needed), folder.string(), free, byte_text(free)));
}

/// Writes the shards of a plan.
class Quantizer {
 public:
  Quantizer(const Checkpoint& checkpoint, SafetensorsSource& source, const Parallel& parallel, const QuantizeProgress& progress)
      : checkpoint_(checkpoint), rounder_(source, parallel), parallel_(parallel), progress_(progress) {
    for (const std::string& name : checkpoint.names()) report_.bytes_before += size_of(name);
  }

  Result<void> write(const ShardPlan& shard, const fs::path& folder) {
    std::vector<TensorHeader> tensors;
    for (const TensorJob& job : shard.jobs) tensors.insert(tensors.end(), job.written.begin(), job.written.end());
    BATON_TRY(ShardWriter writer, ShardWriter::create(folder / shard.file, tensors));
    for (const TensorJob& job : shard.jobs) {
      BATON_TRY_VOID(job.is_rounded ? write_rounded(job, writer) : write_copy(job, writer));
      done_ += size_of(job.source);
      BATON_TRY_VOID(tell(done_));
    }
    return writer.finish();
  }

  QuantizeReport report() && { return std::move(report_); }

 private:
  std::int64_t size_of(const std::string& name) const {
    return static_cast<std::int64_t>(checkpoint_.find(name)->bytes.size());
  }

  Result<void> tell(std::int64_t done) const {
    if (progress_ && !progress_(std::min(done, report_.bytes_before), report_.bytes_before))
      return fail(ErrorCode::unavailable, "stopped; nothing was written");
    return {};
  }

  /// Whether all numbers of the format's `dtype` are finite; those of other types than floats are.
  bool is_finite(std::span<const std::byte> numbers, std::string_view dtype) const {
    if (dtype == "F32") return has_no_exponent<std::uint32_t>(numbers, 0x7f800000);
    if (dtype == "BF16") return has_no_exponent<std::uint16_t>(numbers, 0x7f80);
    return dtype != "F16" || has_no_exponent<std::uint16_t>(numbers, 0x7c00);
  }

  /// Whether no number has all bits of `exponent`, as infinities and NaN have. The numbers may be unaligned.
  template <class Bits>
  bool has_no_exponent(std::span<const std::byte> numbers, Bits exponent) const {
    std::atomic<bool> has_none = true;
    const auto n = static_cast<std::int64_t>(numbers.size() / sizeof(Bits));
    parallel_.for_ranges(n, kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      bool found = false;
      for (std::int64_t i = begin; i < end; ++i) {
        Bits bits;
        std::memcpy(&bits, numbers.data() + static_cast<std::size_t>(i) * sizeof(Bits), sizeof(Bits));
        found |= (bits & exponent) == exponent;
      }
      if (found) has_none = false;
    });
    return has_none;
  }

  Result<void> write_copy(const TensorJob& job, ShardWriter& writer) const {
    const std::span<const std::byte> bytes = checkpoint_.find(job.source)->bytes;
    for (std::size_t at = 0; at < bytes.size(); at += kBytesAtOnce) {
      const auto part = bytes.subspan(at, std::min(kBytesAtOnce, bytes.size() - at));
      if (job.is_of_model && !is_finite(part, job.written.front().dtype))
        return fail(ErrorCode::invalid_data, fmt::format("tensor '{}' holds a number that is not finite", job.source));
      BATON_TRY_VOID(writer.append(part));
      checkpoint_.drop_pages({part.data(), DType::u8, {static_cast<std::int64_t>(part.size())}});
      BATON_TRY_VOID(tell(done_ + static_cast<std::int64_t>(at)));
    }
    return {};
  }

  /// Values, then scales, then the shape.
  Result<void> write_rounded(const TensorJob& job, ShardWriter& writer) {
    const std::int64_t n = job.matrix.shape[0];
    const std::int64_t k = job.matrix.shape[1];
    QuantizedMatrix matrix{job.stem + ".weight", n, k};
    const std::int64_t n_groups = (k + job.form.scale_columns - 1) / job.form.scale_columns;
    std::vector<float> scales(static_cast<std::size_t>(n * n_groups));
    const std::int64_t rows_at_once = std::max<std::int64_t>(1, kWeightsAtOnce / k);
    for (std::int64_t begin = 0; begin < n; begin += rows_at_once) {
      const IndexRange rows{begin, std::min(n, begin + rows_at_once)};
      const auto of_rows = std::span(scales).subspan(static_cast<std::size_t>(rows.begin * n_groups));
      BATON_TRY(const std::span<const std::byte> values, rounded(job, rows, of_rows, matrix));
      BATON_TRY_VOID(writer.append(values));
      BATON_TRY_VOID(tell(done_ + size_of(job.source) / n * rows.end));
    }
    report_.matrices.push_back(std::move(matrix));
    if (job.form.scale_dtype == DType::bf16) {
      std::vector<BFloat16> stored(scales.size());
      std::ranges::transform(scales, stored.begin(), [](float scale) { return BFloat16(scale); });
      BATON_TRY_VOID(writer.append(std::as_bytes(std::span(stored))));
    } else {
      BATON_TRY_VOID(writer.append(std::as_bytes(std::span(scales))));
    }
    const std::array<std::int64_t, 2> shape{n, k};
    return job.form.scheme == WeightScheme::i4 ? writer.append(std::as_bytes(std::span(shape))) : Result<void>();
  }

  /// The values of rows as the file has them, valid until the next call. Adds the rows' errors to `matrix`.
  Result<std::span<const std::byte>> rounded(const TensorJob& job, IndexRange rows, std::span<float> scales,
                                             QuantizedMatrix& matrix) {
    const bool is_i4 = job.form.scheme == WeightScheme::i4;
    const auto k = static_cast<std::size_t>(job.matrix.shape[1]);
    const auto n = static_cast<std::size_t>(rows.size());
    const std::size_t row_bytes = is_i4 ? (k + 7) / 8 * 4 : k;
    const std::size_t n_groups =
        (k + static_cast<std::size_t>(job.form.scale_columns) - 1) / static_cast<std::size_t>(job.form.scale_columns);
    values_.assign(n * row_bytes, std::byte{0});
    errors_.assign(n, {});
    BATON_TRY_VOID(rounder_.round(job.matrix, rows, job.form, [&](const RoundedRow& row) {
      const auto r = static_cast<std::size_t>(row.row - rows.begin);
      std::byte* const values = values_.data() + r * row_bytes;
      std::ranges::copy(row.values, values);
      std::ranges::copy(row.scales, scales.begin() + static_cast<std::ptrdiff_t>(r * n_groups));
      std::vector<float> widened(k);
      widen_row(job.form, row.values.data(), row.scales, widened);
      for (std::size_t c = 0; c < k; ++c) {
        const double change = static_cast<double>(widened[c]) - row.weights[c];
        errors_[r].first += static_cast<double>(row.weights[c]) * row.weights[c];
        errors_[r].second += change * change;
      }
      // The file has signed bytes.
      for (std::size_t c = 0; job.form.scheme == WeightScheme::i8 && c < k; ++c) values[c] ^= std::byte{0x80};
    }));
    for (const auto& [squares, changes] : errors_) {
      matrix.squares += squares;
      matrix.error_squares += changes;
    }
    return std::span<const std::byte>(values_);
  }

  const Checkpoint& checkpoint_;
  RowRounder rounder_;
  const Parallel& parallel_;
  const QuantizeProgress& progress_;
  QuantizeReport report_;
  std::int64_t done_ = 0;
  std::vector<std::byte> values_;
  std::vector<std::pair<double, double>> errors_;  ///< of each row: squares of weights and of changes
};

/// The index of several shards.
std::string index_text(const CheckpointPlan& plan) {
  std::string text;
  std::int64_t total = 0;
  for (const ShardPlan& shard : plan.shards)
    for (const TensorJob& job : shard.jobs)
      for (const TensorHeader& tensor : job.written) {
        text += fmt::format("{}\n    {}: {}", text.empty() ? "" : ",", json::dump(json::Value(tensor.name)),
                            json::dump(json::Value(shard.file)));
        total += tensor.size_bytes;
      }
  return fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n", total, text);
}

double relative(double error_squares, double squares) { return squares > 0 ? std::sqrt(error_squares / squares) : 0; }

}  // namespace

double QuantizedMatrix::relative_error() const { return relative(error_squares, squares); }

double QuantizeReport::relative_error() const {
  double all = 0, changed = 0;
  for (const QuantizedMatrix& matrix : matrices) {
    all += matrix.squares;
    changed += matrix.error_squares;
  }
  return relative(changed, all);
}

Result<QuantizeReport> quantize_model(const QuantizeRequest& request, const QuantizeProgress& progress) {
  check(request.rounding.is_on(), "quantize_model: nothing to round to");
  const fs::path out = request.out.has_filename() ? request.out : request.out.parent_path();
  BATON_TRY_VOID(check_outside(request.model, out));
  BATON_TRY(PartFolder part, PartFolder::create(out));
  BATON_TRY(ModelSpec spec, read_model_spec(request.model));
  if (!spec.quantization.method.empty())
    return fail(ErrorCode::unsupported,
                fmt::format("{} is quantised with {} already; quantise the checkpoint that it was made of",
                            request.model.string(), spec.quantization.method));
  BATON_TRY(const Checkpoint checkpoint, Checkpoint::open(request.model));
  BATON_TRY_VOID(fit_to_checkpoint(spec, checkpoint));
  const Parallel parallel(request.n_threads);
  SafetensorsSource source(checkpoint, spec.quantization, parallel);
  BATON_TRY_VOID(check_weights(spec, checkpoint, {}, request.rounding));
  source.log_differences(expected_tensors(spec), spec, DType::f32);
  BATON_TRY(const CheckpointPlan plan, plan_checkpoint(request.model, checkpoint, spec, request.rounding));
  if (request.needs_group) BATON_TRY_VOID(check_group(plan, request.rounding));
  const std::vector<fs::path> others = other_files(request.model);
  BATON_TRY_VOID(check_room(part.path(), plan, others));
  BATON_TRY(json::Value config, json::parse_file(request.model / "config.json"));
  BATON_TRY_VOID(write_file(part.path() / "config.json",
                            json::dump_pretty(quantized_config(std::move(config), plan, request.rounding)) + "\n"));
  for (const fs::path& file : others) {
    std::error_code error;
    fs::copy_file(file, part.path() / file.filename(), error);
    if (error) return cannot("copy", file, error);
  }
  Quantizer quantizer(checkpoint, source, parallel, progress);
  for (const ShardPlan& shard : plan.shards) BATON_TRY_VOID(quantizer.write(shard, part.path()));
  if (plan.shards.size() > 1 || plan.shards.front().file != "model.safetensors")
    BATON_TRY_VOID(write_file(part.path() / "model.safetensors.index.json", index_text(plan)));
  BATON_TRY_VOID(part.keep());
  QuantizeReport report = std::move(quantizer).report();
  report.bytes_after = plan.size_bytes;
  for (const auto& [columns, modules] : plan.modules_by)
    report.n_by_columns[columns] = static_cast<std::int64_t>(modules.size());
  return report;
}

}  // namespace baton
