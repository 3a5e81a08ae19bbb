/// What the experiments of the workshop share: checked calls, launches, replays of captured graphs by the clock, a
/// table of results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

namespace workshop {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline void check_equal(double found, double expected, const std::string& what) {
  if (found == expected) return;
  std::fprintf(stderr, "WRONG RESULT, %s: %.17g, expected %.17g\n", what.c_str(), found, expected);
  std::exit(1);
}

/// Launches with dynamic shared memory; `overlap` is programmatic dependent launch: the grid may start while its
/// predecessor runs.
template <typename... Args>
void launch(cudaStream_t stream, void (*kernel)(Args...), int grid, int threads, std::size_t shared_bytes, bool overlap,
            std::type_identity_t<Args>... args) {
  if (shared_bytes > 48 * 1024)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args...), "launch");
}

struct Timing {
  double us = 0;      ///< median of the replays, per call
  double spread = 0;  ///< half of what lies between the 10th and the 90th percentile, over the median
};

using Enqueue = std::function<void(cudaStream_t)>;

/// Captures `n_calls` calls, replays the graph and times each replay by events. `before` runs untimed ahead of each
/// replay.
inline Timing time_graph(cudaStream_t stream, int n_calls, const std::function<void(cudaStream_t, int)>& call,
                         const Enqueue& before = {}, int n_replays = 25) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  for (int i = 0; i < n_calls; ++i) call(stream, i);
  check_cuda(cudaStreamEndCapture(stream, &graph), "end capture");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  check_cuda(cudaGraphUpload(executable, stream), "upload");
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "event");
  check_cuda(cudaEventCreate(&end), "event");
  std::vector<double> times;
  constexpr int kWarmUp = 3;
  for (int i = 0; i < n_replays + kWarmUp; ++i) {
    if (before) before(stream);
    check_cuda(cudaEventRecord(begin, stream), "record");
    check_cuda(cudaGraphLaunch(executable, stream), "graph launch");
    check_cuda(cudaEventRecord(end, stream), "record");
    check_cuda(cudaEventSynchronize(end), "replay");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (i >= kWarmUp) times.push_back(ms * 1e3 / n_calls);
  }
  check_cuda(cudaGetLastError(), "replay");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  const double median = times[n / 2];
  return {median, (times[n - 1 - n / 10] - times[n / 10]) / (2 * median)};
}

/// Lines of measurements under the same columns; printed as text and as JSON.
class Table {
 public:
  Table(std::string name, std::string title, std::vector<std::string> columns)
      : name_(std::move(name)), title_(std::move(title)), columns_(std::move(columns)) {}

  /// One cell: the time, and what it stands for ("4.07 TB/s" as value 4.07).
  struct Cell {
    Timing timing;
    double value = 0;
  };
  void add(const std::string& label, std::vector<Cell> cells) { rows_.push_back({label, std::move(cells)}); }

  /// Prints microseconds, or the values where `values` is set.
  void print(bool values, const char* format) const {
    std::printf("\n%s: %s\n%-42s", name_.c_str(), title_.c_str(), "");
    for (const std::string& column : columns_) std::printf(" %8s", column.c_str());
    std::printf("   spread\n");
    for (const Row& row : rows_) {
      std::printf("%-42s", row.label.c_str());
      double spread = 0;
      for (const Cell& cell : row.cells) {
        char text[32];
        std::snprintf(text, sizeof text, format, values ? cell.value : cell.timing.us);
        std::printf(" %8s", text);
        spread = std::max(spread, cell.timing.spread);
      }
      std::printf("   %.1f%%\n", spread * 100);
    }
    std::fflush(stdout);
  }

  std::string json() const {
    std::string text;
    for (const Row& row : rows_)
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        char line[256];
        std::snprintf(
            line, sizeof line,
            "%s{\"table\": \"%s\", \"row\": \"%s\", \"column\": \"%s\", \"us\": %.4f, \"spread\": %.4f, \"value\": %.5g}",
            text.empty() ? "" : ",\n  ", name_.c_str(), row.label.c_str(), columns_[i].c_str(), row.cells[i].timing.us,
            row.cells[i].timing.spread, row.cells[i].value);
        text += line;
      }
    return text;
  }

  /// The row with the least time in a column.
  std::string best(std::size_t column) const {
    const auto found = std::min_element(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) {
      return a.cells[column].timing.us < b.cells[column].timing.us;
    });
    char line[160];
    std::snprintf(line, sizeof line, "%8s: %.2f us = %.2f by \"%s\"", columns_[column].c_str(), found->cells[column].timing.us,
                  found->cells[column].value, found->label.c_str());
    return line;
  }
  std::size_t n_columns() const { return columns_.size(); }

 private:
  struct Row {
    std::string label;
    std::vector<Cell> cells;
  };
  std::string name_;
  std::string title_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

}  // namespace workshop
