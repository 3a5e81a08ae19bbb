/// Experiment 3: which form of a GEMM that streams weights is fastest at 1 to 256 rows of x.
///
/// Rows of the weight are wgmma's M. Forms differ in row tiles and blocks of k a stage, warpgroups that share k,
/// accumulators, clusters, multicast, and operations fused to the end (streaming_kernel.cuh). A label such as
/// "N8 T2C1U1x4 q2 f1 s12" says: 8 rows of x, padded; 2 row tiles of 64 weight rows in a stage; 1 warpgroup a tile; 1
/// block of 64 k; 4 accumulators; clusters of 2 that share k; flags 1; 12 stages in the ring. "h2": pairs of blocks
/// share x. "res": adds to a float32 residual; "silu": SiLU(gate) x up. src/kernels/cuda/gemm/stream_gemm.cu came from here.
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr -cudart static
///         -o 03_streaming workshop/03_streaming.cu -lcublasLt
///     ./03_streaming check [--quick]   every form against float64, bytes behind the end, resets, the same bits again
///     ./03_streaming bits              a row's bits alone and in company, over all widths of each form
///     ./03_streaming time [OPTION...]  microseconds per call in a replayed graph; $OUT/stream.jsonl if OUT is set
///     ./03_streaming once [OPTION...]  each named form three times without a graph, for ncu
///
///     --models 7b,8b,34b,30b           which shapes (34b: CodeLlama, 30b: Llama-30B)
///     --weights qkv,o,gate_up,down,head
///     --rows 1,8,32,64,128,256
///     --forms all|SUBSTRING,...        labels that contain one of these ("T2C1U1x4", "q4")
///     --without SUBSTRING,...          no labels that contain one (" q", "h2", "C2")
///     --flags 0,1,2,...                sums of 1: evict first, 2: next kernel starts late, 4: direct stores,
///                                      8: no weights before the wait, 16: weight row-major, not packed
///     --ring KB,...                    most bytes of the ring
///     --between                        a small kernel that rewrites x between the calls; times are of pairs
///     --no-overlap                     without programmatic dependent launch
///     --no-peers                       neither cuBLASLt nor the kernel that only reads
///     --all                            print every form, not the best four
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "measure.cuh"
#include "streaming_check.cuh"
#include "streaming_machine.cuh"

namespace workshop {
namespace {

/// A small kernel between the matmuls, as norms are: a block a row rewrites it.
__global__ void rewrite_rows(const __nv_bfloat16* from, __nv_bfloat16* to, int k) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const auto* in = reinterpret_cast<const uint4*>(from + std::int64_t(blockIdx.x) * k);
  auto* out = reinterpret_cast<uint4*>(to + std::int64_t(blockIdx.x) * k);
  std::uint32_t any = 0;
  for (int i = threadIdx.x; i < k / 8; i += blockDim.x) any |= __ldcg(in + i).x;
  any = __reduce_or_sync(~0u, any);
  for (int i = threadIdx.x; i < k / 8; i += blockDim.x) {
    uint4 v = __ldcg(in + i);
    v.y |= any & 0;
    out[i] = v;
  }
}
template <int kLoads>
__global__ void __launch_bounds__(512, 2) read_once(const uint4* in, std::int64_t n, std::uint32_t* sums) {
  const std::int64_t first = std::int64_t(blockIdx.x) * (512 * kLoads) + threadIdx.x;
  uint4 v[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) v[i] = first + i * 512 < n ? __ldcs(in + first + i * 512) : make_uint4(0, 0, 0, 0);
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  sum = __reduce_add_sync(~0u, sum);
  if (threadIdx.x % 32 == 0) sums[blockIdx.x * 16 + threadIdx.x / 32] = sum;
}

struct NamedWeight {
  std::string name;
  int n, k;
};
std::vector<NamedWeight> weights_of(const Options& options) {
  struct Model {
    const char* name;
    int d, q, kv, ff, vocab;
  };
  std::vector<NamedWeight> list;
  for (const Model& model : {Model{"7b", 4096, 4096, 4096, 11008, 32000}, Model{"8b", 4096, 4096, 1024, 14336, 128256},
                             Model{"34b", 8192, 8192, 1024, 22016, 32000}, Model{"30b", 6656, 6656, 6656, 17920, 32000}}) {
    if (std::find(options.models.begin(), options.models.end(), model.name) == options.models.end()) continue;
    for (const NamedWeight& weight : {NamedWeight{"qkv", model.q + 2 * model.kv, model.d}, NamedWeight{"o", model.d, model.q},
                                      NamedWeight{"gate_up", 2 * model.ff, model.d}, NamedWeight{"down", model.d, model.ff},
                                      NamedWeight{"head", model.vocab, model.d}})
      if (std::find(options.weights.begin(), options.weights.end(), weight.name) != options.weights.end())
        list.push_back({std::string(model.name) + " " + weight.name, weight.n, weight.k});
  }
  return list;
}

/// Calls over rotated copies of a weight.
struct Calls {
  std::int64_t bytes;
  int n_copies, n_calls;
  explicit Calls(const NamedWeight& weight) : bytes(std::int64_t(weight.n) * weight.k * 2) {
    n_copies = static_cast<int>(std::clamp<std::int64_t>((384LL << 20) / bytes, 2, 16));
    n_calls = n_copies * (n_copies < 8 ? (8 + n_copies - 1) / n_copies : 1);
  }
};

Timing time_read(const Machine& machine, const Calls& calls) {
  Timing best{1e30, 0};
  for (const int loads : {2, 4, 8}) {
    auto* const kernel = loads == 2 ? &read_once<2> : loads == 4 ? &read_once<4> : &read_once<8>;
    const auto n = calls.bytes / 16;
    const auto blocks = static_cast<unsigned>((n + 512 * loads - 1) / (512 * loads));
    if (blocks * 16ull > (1u << 24)) continue;
    const Timing timing = time_graph(machine.stream, calls.n_calls, [&](cudaStream_t stream, int call) {
      kernel<<<blocks, 512, 0, stream>>>(reinterpret_cast<const uint4*>(machine.weights + call % calls.n_copies * calls.bytes),
                                         n, machine.words);
    });
    if (timing.us < best.us) best = timing;
  }
  return best;
}

void enqueue_between(const Machine& machine, cudaStream_t stream, int call, int m, int k, bool overlaps) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(m));
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, rewrite_rows, static_cast<const __nv_bfloat16*>(call % 2 ? machine.x2 : machine.x),
                                call % 2 ? machine.x : machine.x2, k),
             "between");
}

struct CublasCase {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
};

Timing time_cublas(const Machine& machine, const NamedWeight& weight, const Calls& calls, int m, const Options& options,
                   Timing& first) {
  CublasCase c;
  check_cublas(cublasLtMatmulDescCreate(&c.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_cublas(cublasLtMatmulDescSetAttribute(c.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
               "transposed");
  const auto n = static_cast<std::uint64_t>(weight.n), k = static_cast<std::uint64_t>(weight.k);
  check_cublas(cublasLtMatrixLayoutCreate(&c.weight, CUDA_R_16BF, k, n, weight.k), "layout");
  check_cublas(cublasLtMatrixLayoutCreate(&c.x, CUDA_R_16BF, k, static_cast<std::uint64_t>(m), weight.k), "layout");
  check_cublas(cublasLtMatrixLayoutCreate(&c.out, CUDA_R_16BF, n, static_cast<std::uint64_t>(m), weight.n), "layout");
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const std::size_t room = kWorkspace;
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room),
               "workspace");
  cublasLtMatmulHeuristicResult_t found[8];
  int n_found = 0;
  check_cublas(
      cublasLtMatmulAlgoGetHeuristic(machine.cublas, c.operation, c.weight, c.x, c.out, c.out, preference, 8, found, &n_found),
      "heuristic");
  Timing best{1e30, 0};
  const float one = 1, zero = 0;
  for (int i = 0; i < n_found; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    const Timing timing = time_graph(
        machine.stream, calls.n_calls,
        [&](cudaStream_t stream, int call) {
          if (options.between) enqueue_between(machine, stream, call, m, weight.k, options.overlaps);
          check_cublas(
              cublasLtMatmul(machine.cublas, c.operation, &one, machine.weights + call % calls.n_copies * calls.bytes, c.weight,
                             options.between && call % 2 == 0 ? machine.x2 : machine.x, c.x, &zero, machine.y, c.out, machine.y,
                             c.out, &found[i].algo, machine.workspace, kWorkspace, stream),
              "matmul");
        },
        {}, 5);
    if (i == 0) first = timing;
    if (timing.us < best.us) best = timing;
  }
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(c.out);
  cublasLtMatrixLayoutDestroy(c.x);
  cublasLtMatrixLayoutDestroy(c.weight);
  cublasLtMatmulDescDestroy(c.operation);
  return best;
}

Timing time_plan(const Machine& machine, const Plan& plan, const Calls& calls, int m, const Options& options) {
  const CUtensorMap map = map_of(machine, machine.x, m, plan.k, plan.variant.n / plan.variant.share);
  const CUtensorMap map2 = map_of(machine, machine.x2, m, plan.k, plan.variant.n / plan.variant.share);
  return time_graph(machine.stream, calls.n_calls, [&](cudaStream_t stream, int call) {
    if (options.between) enqueue_between(machine, stream, call, m, plan.k, options.overlaps);
    enqueue(machine, plan, stream, options.between && call % 2 == 0 ? map2 : map,
            machine.weights + call % calls.n_copies * calls.bytes, machine.y, m);
  });
}

/// The named forms' plans for a weight and number of rows.
std::vector<Plan> plans_of(const Machine& machine, const NamedWeight& weight, int m, const Options& options) {
  std::vector<Plan> plans;
  for (const Variant& variant : variants_of_width(width_of(m)))
    for (const int cluster : {0, 2, 4})
      for (const int flags : options.flags)
        for (const int ring : options.rings) {
          Plan plan;
          if (!make_plan(machine, variant, weight.n, weight.k, cluster, ring, flags, options.overlaps, plan)) continue;
          if (is_named(options, plan, false)) plans.push_back(plan);
        }
  return plans;
}

int run_once(const Machine& machine, const Options& options) {
  for (const NamedWeight& weight : weights_of(options)) {
    const Calls calls(weight);
    for (const int m : options.rows)
      for (const Plan& plan : plans_of(machine, weight, m, options)) {
        const CUtensorMap map = map_of(machine, machine.x, m, plan.k, plan.variant.n / plan.variant.share);
        for (int call = 0; call < 3; ++call)
          enqueue(machine, plan, machine.stream, map, machine.weights + call % calls.n_copies * calls.bytes, machine.y, m);
        check_cuda(cudaStreamSynchronize(machine.stream), "once");
        std::printf("%s, %d rows: %s, %d blocks\n", weight.name.c_str(), m, plan.label().c_str(),
                    plan.schedule.n_blocks * plan.variant.share);
      }
  }
  return 0;
}

int run_time(const Machine& machine, const Options& options) {
  std::FILE* json = nullptr;
  if (const char* folder = std::getenv("OUT")) json = std::fopen((std::string(folder) + "/stream.jsonl").c_str(), "a");
  std::vector<std::string> summary;
  for (const NamedWeight& weight : weights_of(options)) {
    const Calls calls(weight);
    const Timing read = options.peers ? time_read(machine, calls) : Timing{};
    for (const int m : options.rows) {
      struct Result {
        std::string label;
        Timing timing;
      };
      std::vector<Result> results;
      for (const Plan& plan : plans_of(machine, weight, m, options))
        results.push_back({plan.label(), time_plan(machine, plan, calls, m, options)});
      std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.timing.us < b.timing.us; });
      Timing cublas_first;
      const Timing cublas = options.peers ? time_cublas(machine, weight, calls, m, options, cublas_first) : Timing{};
      if (json != nullptr)
        for (const Result& r : results)
          std::fprintf(
              json,
              "{\"weight\": \"%s\", \"n\": %d, \"k\": %d, \"rows\": %d, \"form\": \"%s\", \"us\": %.3f, \"spread\": %.4f, "
              "\"read_us\": %.3f, \"cublas_us\": %.3f, \"cublas_first_us\": %.3f, \"between\": %d, \"overlap\": %d}\n",
              weight.name.c_str(), weight.n, weight.k, m, r.label.c_str(), r.timing.us, r.timing.spread, read.us, cublas.us,
              cublas_first.us, options.between, options.overlaps);
      std::printf("%-12s %3d rows, read %.2f, cublas %.2f (first %.2f):", weight.name.c_str(), m, read.us, cublas.us,
                  cublas_first.us);
      for (std::size_t i = 0; i < results.size() && (options.all || i < 4); ++i)
        std::printf("%s %s %.2f", i == 0 ? "" : ";", results[i].label.c_str(), results[i].timing.us);
      std::printf("\n");
      std::fflush(stdout);
      if (results.empty()) continue;
      char line[200];
      const double flops = 2.0 * m * weight.n * weight.k;
      std::snprintf(line, sizeof line, "%-12s %6d x %5d %4d %8.2f %8.2f %8.2f  %5.3f  %5.3f %6.2f %6.0f  %s",
                    weight.name.c_str(), weight.n, weight.k, m, read.us, cublas.us, results[0].timing.us,
                    read.us / results[0].timing.us, cublas.us / results[0].timing.us,
                    double(calls.bytes) / results[0].timing.us / 1e6, flops / results[0].timing.us / 1e6,
                    results[0].label.c_str());
      summary.push_back(line);
    }
  }
  if (json != nullptr) std::fclose(json);
  std::printf("\n%-12s %14s %4s %8s %8s %8s  %5s  %5s %6s %6s  best form%s\n", "weight", "n x k", "rows", "read us", "cublas",
              "ours", "read/", "cub/", "TB/s", "TFLOP", options.between ? " (pairs with a small kernel)" : "");
  for (const std::string& line : summary) std::printf("%s\n", line.c_str());
  return 0;
}

template <class T, class Convert>
std::vector<T> split(const char* text, Convert convert) {
  std::vector<T> list;
  std::string part;
  for (const char* c = text;; ++c) {
    if (*c == ',' || *c == 0) {
      if (!part.empty()) list.push_back(convert(part));
      part.clear();
      if (*c == 0) break;
    } else {
      part += *c;
    }
  }
  return list;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: 03_streaming check [--quick] | bits | time [OPTION...] | once [OPTION...]\n");
    return 2;
  }
  const std::string command = argv[1];
  Options options;
  const auto text = [](const std::string& part) { return part; };
  const auto number = [](const std::string& part) { return std::atoi(part.c_str()); };
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--between")
      options.between = true;
    else if (name == "--quick")
      options.quick = true;
    else if (name == "--no-overlap")
      options.overlaps = false;
    else if (name == "--no-peers")
      options.peers = false;
    else if (name == "--all")
      options.all = true;
    else if (name == "--models")
      options.models = split<std::string>(value, text), ++i;
    else if (name == "--weights")
      options.weights = split<std::string>(value, text), ++i;
    else if (name == "--forms")
      options.forms = split<std::string>(value, text), ++i;
    else if (name == "--without")
      options.without = split<std::string>(value, text), ++i;
    else if (name == "--rows")
      options.rows = split<int>(value, number), ++i;
    else if (name == "--flags")
      options.flags = split<int>(value, number), ++i;
    else if (name == "--ring")
      options.rings = split<int>(value, number), ++i;
    else {
      std::printf("unknown option %s\n", name.c_str());
      return 2;
    }
  }
  const Machine machine = open_machine();
  if (command == "check") return run_check(machine, options);
  if (command == "once") return run_once(machine, options);
  if (command == "bits") return run_bits(machine, options);
  if (command == "time") return run_time(machine, options);
  std::printf("unknown command %s\n", command.c_str());
  return 2;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) { return workshop::run(argc, argv); }
