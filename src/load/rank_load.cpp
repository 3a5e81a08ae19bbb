/// What rank 0 tells the other ranks before they load, and how they check it.
#include "load/rank_load.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "engine/step/rank_steps.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/json.h"
#include "load/load_engine.h"
#include "load/weight_rounding.h"

namespace baton {
namespace {

/// Of a file of weights: as many samples of as many bytes, evenly spread, and this much of its beginning.
constexpr std::uint64_t kSamples = 16;
constexpr std::uint64_t kSampleBytes = 4096;
constexpr std::uint64_t kBeginningBytes = std::uint64_t{1} << 20;

/// Appends bytes [at, at + n) of a file, as far as there are.
void append_part(std::ifstream& file, std::uint64_t at, std::uint64_t n, std::string& text) {
  std::string part(n, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  file.read(part.data(), static_cast<std::streamsize>(n));
  part.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  text += part;
}

Result<void> append_weights(const std::filesystem::path& path, std::string& text) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return fail(ErrorCode::not_found, fmt::format("cannot read {}", path.string()));
  text += fmt::format("\n{} {}\n", path.filename().string(), size);
  append_part(file, 0, std::min(size, kBeginningBytes), text);
  for (std::uint64_t i = 1; i <= kSamples; ++i) append_part(file, size / kSamples * i, kSampleBytes, text);
  return {};
}

/// What a rank has beside what rank 0 said: a sentence about what differs.
Result<void> compare(const json::Value& said, const char* field, const std::string& own, std::string_view name) {
  BATON_TRY(const std::string expected, json::convert<std::string>(said.at(field), field));
  if (expected == own) return {};
  return fail(ErrorCode::invalid_data, fmt::format("its {} {} is not rank 0's, {}", name, own, expected));
}

/// The name of the level below which this process logs nothing.
std::string_view log_level() {
  for (const std::string_view name : {"debug", "info", "warning"})
    if (log::is_enabled(log::level_from_name(name).value())) return name;
  return "error";
}

/// Loads and follows once.
Result<void> load_and_follow(const std::string& what, const std::shared_ptr<RankGroup>& ranks) {
  BATON_TRY(const json::Value said, json::parse(what, "rank 0's message"));
  BATON_TRY(const std::string level, json::convert<std::string>(said.at("log_level"), "log_level"));
  BATON_TRY(const log::Level logged, log::level_from_name(level));
  log::set_level(logged);
  ModelFiles files;
  BATON_TRY(files.name, json::convert<std::string>(said.at("name"), "name"));
  BATON_TRY(const std::string folder, json::convert<std::string>(said.at("folder"), "folder"));
  files.folder = folder;
  ModelOptions options;
  options.ranks = ranks;
  BATON_TRY(options.load_format, json::convert<std::string>(said.at("load_format"), "load_format"));
  BATON_TRY(options.quantization, json::convert<std::string>(said.at("quantization"), "quantization"));
  BATON_TRY(options.quantize_lm_head, json::convert<bool>(said.at("quantize_lm_head"), "quantize_lm_head"));
  BATON_TRY(options.activation_dtype, json::convert<std::string>(said.at("activation_dtype"), "activation_dtype"));
  BATON_TRY(options.device, json::convert<std::string>(said.at("device"), "device"));
  BATON_TRY(options.threads, json::convert<int>(said.at("threads"), "threads"));
  BATON_TRY(options.batch_invariant, json::convert<bool>(said.at("batch_invariant"), "batch_invariant"));
  BATON_TRY(options.seed, json::convert<std::uint64_t>(said.at("seed"), "seed"));
  BATON_TRY(const std::string digest, model_digest(files.folder, options));
  BATON_TRY_VOID(compare(said, "digest", digest, "checksum of config.json and weights"));
  BATON_TRY(std::unique_ptr<Backend> backend, open_device(options));
  BATON_TRY(const std::optional<std::string> of_device, next_device(*ranks));
  if (!of_device) return {};
  BATON_TRY(const json::Value device, json::parse(*of_device, "rank 0's message about its device"));
  BATON_TRY(options.dtype, json::convert<std::string>(device.at("dtype"), "dtype"));
  BATON_TRY(options.activation_dtype, json::convert<std::string>(device.at("activation_dtype"), "activation_dtype"));
  BATON_TRY_VOID(compare(device, "features", backend->info().features, "device"));
  BATON_TRY(LoadedModel loaded, load_model(files, options, *backend));
  log::info("event=rank_loaded rank={} weights_mb={:.1f} device=\"{}\"", ranks->rank(),
            static_cast<double>(loaded.weight_bytes) / 1e6, backend->info().device);
  return follow_rank_0(std::move(backend), std::move(loaded.model), *ranks);
}

}  // namespace

Result<std::string> model_digest(const std::filesystem::path& folder, const ModelOptions& options) {
  BATON_TRY(std::string text, read_file(folder / "config.json"));
  BATON_TRY(const QuantizationText quantization, quantization_text(folder, options));
  text += quantization.whole();
  if (options.load_format == "dummy") return sha256_of_text(text);
  for (const std::filesystem::path& path : weight_files(folder)) BATON_TRY_VOID(append_weights(path, text));
  return sha256_of_text(text);
}

Result<std::string> describe_load(const ModelFiles& files, const ModelOptions& options) {
  BATON_TRY(const std::string digest, model_digest(files.folder, options));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(files.folder, error);
  if (error) return fail(ErrorCode::io, fmt::format("{}: {}", files.folder.string(), error.message()));
  return json::dump(json::Value{{"log_level", log_level()},
                                {"name", files.name},
                                {"folder", folder.string()},
                                {"load_format", options.load_format},
                                {"quantization", options.quantization},
                                {"quantize_lm_head", options.quantize_lm_head},
                                {"activation_dtype", options.activation_dtype},
                                {"device", options.device},
                                {"threads", options.threads},
                                {"batch_invariant", options.batch_invariant},
                                {"seed", options.seed},
                                {"digest", digest}});
}

std::string describe_device(DType dtype, std::string_view activation_dtype, const BackendInfo& device) {
  return json::dump(
      json::Value{{"dtype", to_string(dtype)}, {"activation_dtype", activation_dtype}, {"features", device.features}});
}

Result<void> run_rank(const std::shared_ptr<RankGroup>& ranks) {
  while (true) {
    BATON_TRY(const std::optional<std::string> what, next_load(*ranks));
    if (!what) return {};
    if (const auto done = load_and_follow(*what, ranks); !done) {
      ranks->fail(done.error().message);  // nothing new if the group is broken, or rank 0 was told
      return done;
    }
  }
}

}  // namespace baton
