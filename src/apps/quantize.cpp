/// A checkpoint with rounded weights, and what rounding changed.
#include "apps/programs.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "core/one_line.h"
#include "load/byte_text.h"
#include "load/model_files.h"
#include "load/quantize/quantize_model.h"
#include "load/weight_rounding.h"

namespace baton {
namespace {

constexpr std::string_view kAllMatrices = "all matrices";

Result<WeightRounding> rounding_asked_for(const QuantizeOptions& options) {
  ModelOptions model;
  model.quantization = options.scheme;
  model.quantize_lm_head = options.quantize_lm_head;
  BATON_TRY(WeightRounding rounding, rounding_of(model, {}));
  if (options.group == 0) return rounding;
  if (rounding.scheme != WeightScheme::i4)
    return fail(ErrorCode::invalid_request, fmt::format("--group: {} has a scale for each row", options.scheme), "group");
  if (options.group % kScaleStep != 0)
    return fail(ErrorCode::invalid_request,
                fmt::format("--group {}: columns that share a scale are a multiple of {}", options.group, kScaleStep), "group");
  rounding.group = options.group;
  return rounding;
}

/// Names come from the files.
void print_error_row(std::string_view name, std::size_t width, const std::string& shape, double error) {
  print_output("{:<{}}  {:>15}  {:.5f}\n", one_line(name, kMaxMessageBytes), width, shape, error);
}

void print_report(const QuantizeReport& report) {
  std::size_t width = kAllMatrices.size();
  for (const QuantizedMatrix& matrix : report.matrices) width = std::max(width, matrix.name.size());
  print_output("{:<{}}  {:>15}  {}\n", "matrix", width, "shape", "relative RMS error");
  for (const QuantizedMatrix& matrix : report.matrices)
    print_error_row(matrix.name, width, fmt::format("{} x {}", matrix.n, matrix.k), matrix.relative_error());
  print_error_row(kAllMatrices, width, fmt::format("{}", report.matrices.size()), report.relative_error());
}

Result<void> quantize(const QuantizeOptions& options) {
  BATON_TRY(const WeightRounding rounding, rounding_asked_for(options));
  BATON_TRY(const ModelFiles files, find_model_files(options.model, download_bar()));
  watch_interrupts();
  watch_terminations();
  std::optional<Progress> bar;
  BATON_TRY(const QuantizeReport report,
            quantize_model({files.folder, options.out, rounding, options.model.threads, options.group != 0},
                           [&](std::int64_t done, std::int64_t total) {
                             if (!bar) bar.emplace("quantising:", "MB", total / 1'000'000);
                             bar->update(done / 1'000'000);
                             return !was_interrupted();
                           }));
  if (bar) bar->finish();
  print_report(report);
  print_output("\nscales: {}\n", scales_text(rounding, report.n_by_columns));
  print_output("{}: {}, of {} before\n", options.out, byte_text(report.bytes_after), byte_text(report.bytes_before));
  return {};
}

}  // namespace

int quantize_main(const QuantizeOptions& options) { return exit_code("baton quantize", quantize(options)); }

}  // namespace baton
