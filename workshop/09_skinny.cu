/// Experiment 9: what do 1 to 8 rows of x by weights of 8 and 4 bits cost with mma.sync, and with the next weight on its way?
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr --diag-suppress=554
///         -cudart static -Isrc -Iworkshop -o 09_skinny workshop/09_skinny.cu src/kernels/cuda/gemm/tensor_map.cpp
///     ./09_skinny check               every scheme against float64, bytes behind the end, the same bits again
///     ./09_skinny time [--even-ring]  microseconds of each matmul of Llama-3-8B and of a layer's four in a replayed graph
///
/// A layer has stand-ins for the small kernels, in the engine's order and launched as they are: "short" ends them at once,
/// "long" has attention take 8 us and each other one 1.5 us. "ahead": each matmul brings the first 16 MB of the next one's
/// weight into the L2. --even-ring: no slot of the ring serves both sets of warps (NOTES.md says why).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure.cuh"
#include "skinny_kernel.cuh"

namespace workshop {
namespace {

constexpr int kGroupShift = 7;  // groups of 128 columns

__device__ std::uint32_t drawn(std::uint64_t i, std::uint32_t seed) {
  std::uint32_t z = static_cast<std::uint32_t>(i) * 2654435761u + seed;
  z = (z ^ (z >> 15)) * 2246822519u;
  z = (z ^ (z >> 13)) * 3266489917u;
  return z ^ (z >> 16);
}
__global__ void fill_words(std::uint32_t* to, std::int64_t n, std::uint32_t seed, std::uint32_t mask) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) to[i] = drawn(i, seed) & mask;
}
__global__ void fill_x(__nv_bfloat16* to, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    to[i] = __float2bfloat16((static_cast<int>(drawn(i, 7) & 0xffffu) - 32768) / 32768.0f);
}

template <class T>
T* device_array(std::int64_t n) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, n * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}
template <class T>
T* on_device(const std::vector<T>& from) {
  T* const to = device_array<T>(static_cast<std::int64_t>(from.size()));
  check_cuda(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return to;
}

/// A packed weight of random codes: 4 bits with scales in bf16 for groups (and zeros), or 8 bits with scales for rows.
class Weight {
 public:
  Weight(WeightScheme scheme, int n, int k, bool has_zeros, std::uint32_t seed) : scheme_(scheme) {
    const int chunk = chunk_columns(scheme);
    view_.n = n;
    view_.k = k;
    view_.n_tiles = n / kSchemeTileRows;
    view_.n_chunks = (k / chunk + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;
    auto* const words = device_array<std::uint32_t>(n_bytes() / 4);
    // Of e4m3 all codes whose magnitude is below 2, so none that is no number.
    fill_words<<<1024, 256>>>(words, n_bytes() / 4, seed, scheme == WeightScheme::f8 ? 0xbfbfbfbfu : 0xffffffffu);
    view_.values = reinterpret_cast<const std::byte*>(words);
    if (scheme == WeightScheme::i4) {
      view_.group_shift = kGroupShift;
      view_.n_groups = view_.n_chunks * chunk >> kGroupShift;
      std::vector<__nv_bfloat16> scales(static_cast<std::size_t>(n) * view_.n_groups);
      for (std::size_t i = 0; i < scales.size(); ++i)
        scales[i] = __float2bfloat16(0.01f + 0.0001f * static_cast<float>(i % 97));
      view_.scales = reinterpret_cast<const std::byte*>(on_device(scales));
      view_.scale_dtype = DType::bf16;
      if (has_zeros) {
        std::vector<std::uint8_t> zeros(scales.size());
        for (std::size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<std::uint8_t>(i * 7 % 16);
        view_.zeros = on_device(zeros);
      }
    } else {
      std::vector<float> scales(n);
      for (int i = 0; i < n; ++i) scales[i] = 0.01f + 0.0001f * static_cast<float>(i % 89);
      view_.row_scales = on_device(scales);
    }
  }
  ~Weight() {
    for (const void* memory : {static_cast<const void*>(view_.values), static_cast<const void*>(view_.scales),
                               static_cast<const void*>(view_.zeros), static_cast<const void*>(view_.row_scales)})
      cudaFree(const_cast<void*>(memory));
  }
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  WeightScheme scheme() const { return scheme_; }
  const SchemeView& view() const { return view_; }
  std::int64_t n_bytes() const { return static_cast<std::int64_t>(view_.n_tiles) * view_.n_chunks * kPieceBytes; }

 private:
  WeightScheme scheme_;
  SchemeView view_;
};

struct Machine {
  Device device;
  void* encode = tensor_map_encoder();
  uint4* partials = nullptr;
  bool has_even_ring = false;

  Machine() {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
    device.name = properties.name;
    device.compute_capability = 10 * properties.major + properties.minor;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = properties.sharedMemPerBlockOptin;
    check_cuda(cudaStreamCreate(&device.stream), "stream");
    const std::int64_t n_partials = static_cast<std::int64_t>(device.n_multiprocessors) * kSchemeTileRows * kSkinnyWidth / 4;
    partials = device_array<uint4>(n_partials);
    check_cuda(cudaMemset(partials, 0xff, n_partials * sizeof(uint4)), "partials");
  }
};

struct Output {
  void* to = nullptr;
  const void* bias = nullptr;
  bool is_f32 = false;
};

void multiply(const Machine& machine, const Weight& weight, const __nv_bfloat16* x, int n_rows, const Output& out,
              const Weight* next = nullptr) {
  SkinnyParams p;
  p.weight = weight.view();
  p.bias = out.bias;
  p.out = out.to;
  p.out_is_f32 = out.is_f32;
  p.partials = machine.partials;
  p.n_rows = n_rows;
  p.stores_pairs = true;
  p.has_even_ring = machine.has_even_ring;
  if (next != nullptr) {
    p.next_values = next->view().values;
    p.next_bytes = next->n_bytes();
  }
  const ConstTensorView view{reinterpret_cast<const std::byte*>(x), DType::bf16, {n_rows, weight.view().k}};
  const CUtensorMap map = matrix_map(machine.encode, view, kSkinnyWidth);
  switch (weight.scheme()) {
    case WeightScheme::i4: return launch_skinny<WeightScheme::i4, __nv_bfloat16, 4>(machine.device, p, map);
    case WeightScheme::i8: return launch_skinny<WeightScheme::i8, __nv_bfloat16, 2>(machine.device, p, map);
    default: return launch_skinny<WeightScheme::f8, __nv_bfloat16, 2>(machine.device, p, map);
  }
}

// --- check ---

__device__ double value_at(const SchemeView& weight, WeightScheme scheme, std::int64_t n, int k) {
  const int chunk = chunk_columns(scheme), row = static_cast<int>(n % kSchemeTileRows), column = k % chunk;
  const std::int64_t tile = n / kSchemeTileRows;
  const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  const int i = row % 16 / 8 + column % 16 / 8 * 2;
  const auto* const words =
      reinterpret_cast<const std::uint32_t*>(weight.values + (tile * weight.n_chunks + k / chunk) * kPieceBytes + thread * 16);
  const std::uint32_t code = words[fragment_word(scheme, column / 16, i)] >> fragment_bit(scheme, i, column % 2) &
                             (has_half_bytes(scheme) ? 15u : 255u);
  const std::int64_t group = (tile * weight.n_groups + (k >> weight.group_shift)) * kSchemeTileRows + row;
  const double scale = weight.scales == nullptr
                           ? weight.row_scales[n]
                           : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(weight.scales)[group]);
  if (scheme == WeightScheme::f8) return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f * scale;
  const int middle = scheme == WeightScheme::i4 ? 8 : 128;
  return (static_cast<int>(code) - (weight.zeros == nullptr ? middle : static_cast<int>(weight.zeros[group]))) * scale;
}
__global__ void reference_kernel(SchemeView weight, WeightScheme scheme, const __nv_bfloat16* x, double* out) {
  const std::int64_t n = blockIdx.x * 64ll + threadIdx.x, row = blockIdx.y;
  double sum = 0;
  for (int k = 0; k < weight.k; ++k) sum += value_at(weight, scheme, n, k) * __bfloat162float(x[row * weight.k + k]);
  out[row * weight.n + n] = sum;
}

float f32_of_bf16(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, 4);
  return value;
}

struct Case {
  WeightScheme scheme;
  const char* name;
  bool has_zeros;
  bool is_f32;  ///< out; without bias, or bf16 with one
};

bool check_case(const Machine& machine, const Case& form, int n, int k, int n_rows, const __nv_bfloat16* x) {
  const Weight weight(form.scheme, n, k, form.has_zeros, n + k);
  const std::size_t size = form.is_f32 ? 4 : 2, n_out = static_cast<std::size_t>(n_rows) * n;
  std::vector<std::uint16_t> bias(n);
  for (int i = 0; i < n; ++i) bias[i] = static_cast<std::uint16_t>(0x3f80 + i % 64);
  std::uint16_t* const bias_there = on_device(bias);
  const std::int64_t n_bytes = static_cast<std::int64_t>((n_out + n) * size);
  std::byte* const out = device_array<std::byte>(n_bytes);
  std::vector<std::byte> found(n_bytes), again(n_bytes);
  for (auto* to : {&found, &again}) {
    check_cuda(cudaMemset(out, 0xff, n_bytes), "out");
    check_cuda(cudaDeviceSynchronize(), "before");
    multiply(machine, weight, x, n_rows, {out, form.is_f32 ? nullptr : bias_there, form.is_f32}, &weight);
    check_cuda(cudaStreamSynchronize(machine.device.stream), form.name);
    check_cuda(cudaMemcpy(to->data(), out, n_bytes, cudaMemcpyDeviceToHost), "out");
  }
  std::vector<double> expected(n_out);
  double* const reference = device_array<double>(static_cast<std::int64_t>(n_out));
  reference_kernel<<<dim3(n / 64, n_rows), 64>>>(weight.view(), form.scheme, x, reference);
  check_cuda(cudaMemcpy(expected.data(), reference, n_out * 8, cudaMemcpyDeviceToHost), "reference");
  double largest = 0, worst = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < n_out; ++i) {
    float value = 0;
    std::uint16_t half = 0;
    std::memcpy(form.is_f32 ? static_cast<void*>(&value) : &half, found.data() + i * size, size);
    if (!form.is_f32) value = f32_of_bf16(half);
    const double exact = expected[i] + (form.is_f32 ? 0 : f32_of_bf16(bias[i % n]));
    const double bound = 4 * 0x1p-23 * std::sqrt(k) * largest + (form.is_f32 ? 0 : std::abs(exact) / 256);
    const double error = std::abs(value - exact) / bound;
    if (!(error <= worst)) worst = error;  // also if it is no number
  }
  const bool is_clean = std::all_of(found.begin() + static_cast<std::ptrdiff_t>(n_out * size), found.end(),
                                    [](std::byte b) { return b == std::byte{0xff}; });
  const bool is_right = worst <= 1 && is_clean && found == again;
  std::printf("%s %d x %d, %d rows, %s ring: worst error %.3f of its bound%s%s%s\n", form.name, n, k, n_rows,
              machine.has_even_ring ? "even" : "any", worst, is_clean ? "" : ", bytes behind the end",
              found == again ? "" : ", other bits", is_right ? "" : "  WRONG");
  for (void* memory : {static_cast<void*>(bias_there), static_cast<void*>(out), static_cast<void*>(reference)})
    cudaFree(memory);
  return is_right;
}

// --- time ---

__global__ void stand_in(int ns) {
  let_next_kernel_start();
  wait_for_kernel_before();
  const auto now = [] {
    long long at;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(at));
    return at;
  };
  if (ns == 0) return;
  const long long begin = now();
  while (now() - begin < ns) {
  }
}
__global__ void __launch_bounds__(256) read_kernel(const uint4* from, std::int64_t n, unsigned* sink) {
  unsigned sum = 0;
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    const uint4 v = __ldcs(from + i);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

struct Shape {
  const char* name;
  int n, k;
};
constexpr Shape kShapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};

void time_scheme(const Machine& machine, WeightScheme scheme, const char* name, const __nv_bfloat16* x) {
  const int n_layers = scheme == WeightScheme::i4 ? 8 : 4;  // of weights, which the L2 does not hold
  std::vector<std::unique_ptr<Weight>> weights;             // layer by layer
  for (int i = 0; i < n_layers * 4; ++i)
    weights.push_back(std::make_unique<Weight>(scheme, kShapes[i % 4].n, kShapes[i % 4].k, false, i));
  check_cuda(cudaDeviceSynchronize(), "weights");
  const auto weight_of = [&](int layer, int shape) -> const Weight& { return *weights[(layer * 4 + shape) % weights.size()]; };
  const Device& device = machine.device;
  const Output out{device_array<std::uint16_t>(kSkinnyWidth * 28672)};
  auto* const sink = device_array<unsigned>(1);
  for (int shape = 0; shape < 4; ++shape) {
    const auto* const name_of_shape = kShapes[shape].name;
    const std::int64_t n_bytes = weight_of(0, shape).n_bytes();
    const Timing read = time_graph(device.stream, 48, [&](cudaStream_t stream, int i) {
      launch(stream, read_kernel, device.n_multiprocessors * 8, 256, 0, false,
             reinterpret_cast<const uint4*>(weight_of(i, shape).view().values), n_bytes / 16, sink);
    });
    std::printf("%s %-8s %6.1f MB, read %6.2f us", name, name_of_shape, n_bytes / 1e6, read.us);
    for (const int n_rows : {1, 8}) {
      const Timing t =
          time_graph(device.stream, 48, [&](cudaStream_t, int i) { multiply(machine, weight_of(i, shape), x, n_rows, out); });
      std::printf(" | %d: %6.2f us, +-%.1f%%", n_rows, t.us, t.spread * 100);
    }
    std::printf("\n");
  }
  for (const int n_rows : {1, 8})
    for (const bool is_ahead : {false, true})
      for (const bool is_long : {false, true}) {
        const int small_ns = is_long ? 1500 : 0;
        const auto small = [&](int grid, int threads, int ns) {
          launch_overlapped(device, stand_in, dim3(static_cast<unsigned>(grid)), threads, 0, "stand_in", ns);
        };
        const Timing t = time_graph(device.stream, 16, [&](cudaStream_t, int i) {
          const auto product = [&](int shape) {
            multiply(machine, weight_of(i, shape), x, n_rows, out, is_ahead ? &weight_of(i, shape + 1) : nullptr);
          };
          small(n_rows, 512, small_ns);  // norm
          product(0);
          small(4 * n_rows, 256, small_ns);                          // rotation, keys and values to their blocks
          small(device.n_multiprocessors, 256, is_long ? 8000 : 0);  // attention
          product(1);
          small(n_rows, 512, small_ns);  // norm
          product(2);
          small(14 * n_rows, 256, small_ns);  // activation
          product(3);
        });
        std::printf("%s a layer, %d rows, %s%s: %.1f us, +-%.1f%%\n", name, n_rows, is_long ? "long" : "short",
                    is_ahead ? ", ahead" : "", t.us, t.spread * 100);
      }
  std::fflush(stdout);
  cudaFree(out.to);
  cudaFree(sink);
}

int run(std::span<char* const> arguments) {
  const std::string mode = arguments.size() > 1 ? arguments[1] : "";
  const bool is_even = arguments.size() == 3 && std::string(arguments[2]) == "--even-ring";
  if (!(mode == "check" && arguments.size() == 2) && !(mode == "time" && (arguments.size() == 2 || is_even))) {
    std::fprintf(stderr, "09_skinny check | time [--even-ring]\n");
    return 2;
  }
  Machine machine;
  prefer_shared_memory(stand_in);
  auto* const x = device_array<__nv_bfloat16>(kSkinnyWidth * 14336);
  fill_x<<<256, 256>>>(x, kSkinnyWidth * 14336);
  if (mode == "check") {
    bool is_right = true;
    for (const bool has_even_ring : {false, true}) {
      machine.has_even_ring = has_even_ring;
      for (const Case& form : {Case{WeightScheme::i4, "int4", false, true},
                               {WeightScheme::i4, "int4 with zeros", true, false},
                               {WeightScheme::f8, "e4m3", false, true},
                               {WeightScheme::f8, "e4m3 with bias", false, false},
                               {WeightScheme::i8, "int8", false, true}})
        for (const auto& [n, k] : {std::pair{64, 512}, {192, 1536}, {1024, 8192}, {6144, 4096}, {28672, 4096}, {4096, 14336}})
          for (const int n_rows : {1, 5, 8}) is_right &= check_case(machine, form, n, k, n_rows, x);
    }
    return is_right ? 0 : 1;
  }
  machine.has_even_ring = is_even;
  std::printf("%s, %s ring\n", machine.device.name.c_str(), is_even ? "even" : "any");
  time_scheme(machine, WeightScheme::i4, "int4", x);
  time_scheme(machine, WeightScheme::f8, "e4m3", x);
  return 0;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) { return workshop::run({argv, static_cast<std::size_t>(argc)}); }
