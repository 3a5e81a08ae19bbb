/// The only file that includes oneDNN, and OpenMP, which oneDNN uses.
#include "kernels/cpu/gemm/onednn.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <omp.h>
#include <dnnl.hpp>

#include "kernels/cpu/pages.h"

namespace baton::cpu {
namespace {

using dnnl::memory;

/// Weights are packed in the layout that oneDNN prefers for this many rows (measured as the best for all row counts).
constexpr std::int64_t kPackingRows = 32;

memory::data_type dnnl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return memory::data_type::f32;
    case DType::bf16: return memory::data_type::bf16;
    case DType::f16: return memory::data_type::f16;
    default: check_failed("matmul: not a float dtype");
  }
}

memory::desc row_major(std::int64_t rows, std::int64_t columns, DType dtype) {
  return {{rows, columns}, dnnl_type(dtype), memory::format_tag::ab};
}

/// Makes oneDNN run on the calling thread only: primitives that are created and run after this call start no other
/// threads.
void use_one_thread() { omp_set_num_threads(1); }

/// A matmul whose scratch memory is passed to each run, so that several threads can run it. oneDNN 2 creates the
/// description in two steps, oneDNN 3 in one.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& x, const memory::desc& weight,
                                      const memory::desc& out) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, weight, out, attributes};
#else
  return {dnnl::matmul::desc(x, weight, out), attributes, engine};
#endif
}

bool is_reference(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos;
}

/// Number of whole panels in a slice. It gives all threads equal shares, with three to eight slices for each thread,
/// so that a delayed thread leaves slices to the others. If n does not fill the last panel, its columns belong to the
/// last slice.
std::int64_t panels_a_slice(std::int64_t n_panels, int n_threads) {
  if (n_threads == 1) return n_panels;
  const auto per_thread = [&](std::int64_t n) { return std::max<std::int64_t>(1, n_panels / (n * n_threads)); };
  std::int64_t best = 0;
  std::int64_t best_share = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t panels = per_thread(3); panels >= per_thread(8); --panels) {
    const std::int64_t n_slices = (n_panels + panels - 1) / panels;
    const std::int64_t share = (n_slices + n_threads - 1) / n_threads * panels;
    if (share >= best_share) continue;
    best = panels;
    best_share = share;
  }
  return best;
}

std::vector<WeightSlice> cut(std::int64_t n, int n_threads) {
  const std::int64_t n_panels = std::max<std::int64_t>(1, n / kPanelColumns);
  const std::int64_t step = panels_a_slice(n_panels, n_threads);
  std::vector<WeightSlice> slices;
  for (std::int64_t panel = 0; panel < n_panels; panel += step) {
    const std::int64_t end = panel + step >= n_panels ? n : (panel + step) * kPanelColumns;
    slices.push_back({panel * kPanelColumns, end - panel * kPanelColumns, {}});
  }
  return slices;
}

/// oneDNN's layout of 64-column panels, which our GEMMs read too.
memory::format_tag panel_tag(DType dtype) {
  return dtype == DType::bf16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b;
}

/// The panels of a slice, if its layout has panels: blocks of 64 columns (with AVX-512), or plain rows. Otherwise
/// without data.
PanelMatrix panels_of(const std::byte* data, const memory::desc& packed, std::int64_t n, std::int64_t k, DType dtype) {
  const auto is = [&](memory::format_tag tag) { return packed == memory::desc({k, n}, dnnl_type(dtype), tag); };
  const std::int64_t per_word = dtype == DType::bf16 ? 2 : 1;
  PanelMatrix panels{data, n, (k + per_word - 1) / per_word, kStepBytes, kStepBytes};
  if (is(panel_tag(dtype))) {
    panels.panel_stride = (panels.n_steps + 15) / 16 * 16 * kStepBytes;
  } else if (dtype == DType::f32 && is(memory::format_tag::ab)) {
    panels.step_stride = n * 4;
  } else {
    panels.data = nullptr;
  }
  return panels;
}

/// Parameters of one primitive: rows, columns of a slice, k, dtype, out dtype.
using MatmulKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType>;

/// Objects that a thread uses for itself while it runs a matmul.
struct Lane {
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  using Lines = std::vector<Line>;

  /// Returns memory of at least `size` bytes in `lines`.
  static std::byte* grow(Lines& lines, std::size_t size) {
    const std::size_t n_lines = (size + sizeof(Line) - 1) / sizeof(Line);
    if (lines.size() < n_lines) lines.resize(n_lines);
    return reinterpret_cast<std::byte*>(lines.data());
  }

  dnnl::stream stream;
  Lines scratch;  ///< for oneDNN
  Lines out;      ///< output of a slice
};

}  // namespace

bool limit_matmul_isa(CpuIsa isa) {
  const auto wanted = [&] {
    switch (isa) {
      case CpuIsa::baseline: return dnnl::cpu_isa::sse41;
      case CpuIsa::avx2: return dnnl::cpu_isa::avx2;
      case CpuIsa::avx512: return dnnl::cpu_isa::avx512_core;
      case CpuIsa::avx512_bf16: return dnnl::cpu_isa::avx512_core_bf16;
      case CpuIsa::amx_bf16: return dnnl::cpu_isa::avx512_core_amx;
    }
    return dnnl::cpu_isa::avx2;
  }();
  return dnnl::set_max_cpu_isa(wanted) == dnnl::status::success || dnnl::get_effective_cpu_isa() == wanted;
}

struct SlicedMatrix::Layouts {
  std::vector<memory> of_slice;  ///< the packed data of each slice as [k, n]
};

SlicedMatrix::SlicedMatrix() : layouts(std::make_unique<Layouts>()) {}
SlicedMatrix::~SlicedMatrix() = default;

bool SlicedMatrix::has_panels() const {
  return std::ranges::all_of(slices, [](const WeightSlice& slice) { return slice.panels.data != nullptr; });
}

class OneDnn::Impl {
 public:
  explicit Impl(const Parallel& parallel) : parallel_(parallel), engine_(dnnl::engine::kind::cpu, 0) {
    for (int thread = 0; thread < parallel.n_threads(); ++thread) lanes_.push_back({dnnl::stream(engine_), {}, {}});
  }

  Result<void> pack(ConstTensorView weight, std::string_view name, SlicedMatrix& matrix) {
    matrix.slices = cut(matrix.n, parallel_.n_threads());
    if (!describe_slices(matrix))
      return fail(ErrorCode::unsupported, fmt::format("{}: oneDNN multiplies {} x {} in {} only with its reference code here",
                                                      name, matrix.n, matrix.k, to_string(matrix.dtype)));
    BATON_TRY_VOID(place(matrix));
    reorder(weight, matrix);
    return {};
  }

  Result<void> make_matmuls(std::int64_t rows, const SlicedMatrix& matrix, DType out_dtype, std::string_view name) {
    for (std::size_t i = 0; i < matrix.slices.size(); ++i) {
      const MatmulKey key{rows, matrix.slices[i].n, matrix.k, matrix.dtype, out_dtype};
      if (matmuls_.contains(key)) continue;
      PreparedMatmul matmul;
      matmul.x = row_major(rows, matrix.k, matrix.dtype);
      matmul.out = row_major(rows, matrix.slices[i].n, out_dtype);
      const auto description = describe(engine_, matmul.x, matrix.layouts->of_slice[i].get_desc(), matmul.out);
      if (is_reference(description))
        return fail(ErrorCode::unsupported, fmt::format("{}: oneDNN has no fast matmul of {} rows by {} x {} in {}", name, rows,
                                                        matrix.slices[i].n, matrix.k, to_string(matrix.dtype)));
      matmul.scratch = description.scratchpad_desc();
      matmul.primitive = dnnl::matmul(description);
      matmuls_.emplace(key, std::move(matmul));
    }
    return {};
  }

  /// Each slice's output goes to a buffer of its own, because oneDNN writes whole rows. If x has fewer rows, a padded
  /// copy is multiplied.
  void multiply(std::int64_t rows, const ConstTensorView& x, const SlicedMatrix& matrix, const TensorView& out) {
    check(x.shape[0] <= rows, "OneDnn: more rows than the matmul has");
    const bool pads = x.shape[0] < rows;
    const std::byte* in = pads ? padded(x, static_cast<std::size_t>(rows * matrix.k) * size_bytes(matrix.dtype)) : x.data;
    const std::size_t out_row_bytes = static_cast<std::size_t>(matrix.n) * size_bytes(out.dtype);
    for_slices(matrix, [&](std::size_t index, Lane& lane) {
      const WeightSlice& slice = matrix.slices[index];
      const PreparedMatmul& matmul = matmuls_.at({rows, slice.n, matrix.k, matrix.dtype, out.dtype});
      const bool is_whole = slice.n == matrix.n && !pads;
      std::byte* to = is_whole ? out.data : Lane::grow(lane.out, matmul.out.get_size());
      const memory x_memory(matmul.x, engine_, const_cast<std::byte*>(in));
      const memory out_memory(matmul.out, engine_, to);
      const memory scratch(matmul.scratch, engine_, Lane::grow(lane.scratch, matmul.scratch.get_size()));
      matmul.primitive.execute(lane.stream, {{DNNL_ARG_SRC, x_memory},
                                             {DNNL_ARG_WEIGHTS, matrix.layouts->of_slice[index]},
                                             {DNNL_ARG_DST, out_memory},
                                             {DNNL_ARG_SCRATCHPAD, scratch}});
      lane.stream.wait();
      if (is_whole) return;
      const std::size_t row_bytes = static_cast<std::size_t>(slice.n) * size_bytes(out.dtype);
      std::byte* columns = out.data + static_cast<std::size_t>(slice.first) * size_bytes(out.dtype);
      for (std::size_t row = 0; row < static_cast<std::size_t>(x.shape[0]); ++row)
        std::memcpy(columns + row * out_row_bytes, to + row * row_bytes, row_bytes);
    });
  }

 private:
  struct PreparedMatmul {
    dnnl::matmul primitive;
    memory::desc x;
    memory::desc out;
    memory::desc scratch;
  };

  /// Chooses the layout of each slice. Returns false if oneDNN has only reference code.
  bool describe_slices(SlicedMatrix& matrix) const {
    const auto preferred = [&](std::int64_t n) {
      const memory::desc any({matrix.k, n}, dnnl_type(matrix.dtype), memory::format_tag::any);
      return describe(engine_, row_major(kPackingRows, matrix.k, matrix.dtype), any, row_major(kPackingRows, n, DType::f32));
    };
    const auto in_panels = [&](std::int64_t n) {
      return memory::desc({matrix.k, n}, dnnl_type(matrix.dtype), panel_tag(matrix.dtype));
    };
    const bool has_panels = preferred(matrix.n).weights_desc() == in_panels(matrix.n);
    for (const WeightSlice& slice : matrix.slices) {
      const auto of_slice = preferred(slice.n);
      if (is_reference(of_slice)) return false;
      matrix.layouts->of_slice.emplace_back(has_panels ? in_panels(slice.n) : of_slice.weights_desc(), engine_, nullptr);
    }
    return true;
  }

  /// Allocates the memory of all slices.
  Result<void> place(SlicedMatrix& matrix) const {
    std::size_t size = 0;
    const auto whole_lines = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
    for (const memory& slice : matrix.layouts->of_slice) size += whole_lines(slice.get_desc().get_size());
    // Our GEMMs read whole panels, also beyond the end of the last row.
    BATON_TRY(matrix.buffer, allocate_pages(size + kStepBytes));
    matrix.size_bytes = matrix.buffer.size_bytes();
    std::byte* at = matrix.buffer.data();
    for (std::size_t i = 0; i < matrix.slices.size(); ++i) {
      memory& slice = matrix.layouts->of_slice[i];
      slice.set_data_handle(at);
      matrix.slices[i].panels = panels_of(at, slice.get_desc(), matrix.slices[i].n, matrix.k, matrix.dtype);
      at += whole_lines(slice.get_desc().get_size());
    }
    return {};
  }

  void reorder(ConstTensorView weight, SlicedMatrix& matrix) {
    const std::size_t row_bytes = static_cast<std::size_t>(matrix.k) * size_bytes(weight.dtype);
    for_slices(matrix, [&](std::size_t index, Lane& lane) {
      const WeightSlice& slice = matrix.slices[index];
      const memory::desc transposed({matrix.k, slice.n}, dnnl_type(weight.dtype), memory::format_tag::ba);
      const std::byte* rows = weight.data + static_cast<std::size_t>(slice.first) * row_bytes;
      memory source(transposed, engine_, const_cast<std::byte*>(rows));
      memory& packed = matrix.layouts->of_slice[index];
      dnnl::reorder(source, packed).execute(lane.stream, source, packed);
      lane.stream.wait();
    });
  }

  /// Runs body(slice, lane) for all slices, several in parallel. Rethrows what oneDNN throws there.
  template <class Body>
  void for_slices(const SlicedMatrix& matrix, const Body& body) {
    std::vector<std::exception_ptr> failures(matrix.slices.size());
    parallel_.for_parts(static_cast<std::int64_t>(matrix.slices.size()), [&](std::int64_t part, int thread) {
      const auto index = static_cast<std::size_t>(part);
      use_one_thread();
      try {
        body(index, lanes_[static_cast<std::size_t>(thread)]);
      } catch (...) {
        failures[index] = std::current_exception();
      }
    });
    for (const std::exception_ptr& failure : failures)
      if (failure != nullptr) std::rethrow_exception(failure);
  }

  /// A copy of x, padded with zeros to `size` bytes.
  const std::byte* padded(const ConstTensorView& x, std::size_t size) {
    if (padded_x_.size() < size) padded_x_.resize(size);
    std::memcpy(padded_x_.data(), x.data, x.size_bytes());
    std::memset(padded_x_.data() + x.size_bytes(), 0, size - x.size_bytes());
    return padded_x_.data();
  }

  const Parallel& parallel_;
  dnnl::engine engine_;
  std::vector<Lane> lanes_;  ///< by thread
  std::map<MatmulKey, PreparedMatmul> matmuls_;
  std::vector<std::byte> padded_x_;
};

namespace {

/// Calls a function that may throw oneDNN's errors and converts them to a Result that names the weight.
template <class Body>
Result<void> guarded(const SlicedMatrix& matrix, std::string_view name, const Body& body) {
  use_one_thread();
  try {
    return body();
  } catch (const dnnl::error& error) {
    const auto bytes = static_cast<std::size_t>(matrix.n * matrix.k) * size_bytes(matrix.dtype);
    if (error.status == dnnl_out_of_memory)
      return fail(ErrorCode::out_of_memory, fmt::format("{}: no memory for {} bytes of packed weights", name, bytes));
    return fail(ErrorCode::unsupported, fmt::format("{}: oneDNN cannot multiply {} x {} in {}: {}", name, matrix.n, matrix.k,
                                                    to_string(matrix.dtype), error.what()));
  }
}

}  // namespace

OneDnn::OneDnn(const Parallel& parallel) : impl_(std::make_unique<Impl>(parallel)) {}
OneDnn::~OneDnn() = default;

Result<void> OneDnn::pack(ConstTensorView weight, DType dtype, std::string_view name, SlicedMatrix& matrix) {
  matrix.n = weight.shape[0];
  matrix.k = weight.shape[1];
  matrix.dtype = dtype;
  return guarded(matrix, name, [&] { return impl_->pack(weight, name, matrix); });
}

Result<void> OneDnn::make_matmuls(std::int64_t rows, const SlicedMatrix& matrix, DType out_dtype, std::string_view name) {
  return guarded(matrix, name, [&] { return impl_->make_matmuls(rows, matrix, out_dtype, name); });
}

void OneDnn::multiply(std::int64_t rows, const ConstTensorView& x, const SlicedMatrix& matrix, const TensorView& out) {
  const auto done = guarded(matrix, "matmul", [&]() -> Result<void> {
    BATON_TRY_VOID(impl_->make_matmuls(rows, matrix, out.dtype, "matmul"));
    impl_->multiply(rows, x, matrix, out);
    return {};
  });
  if (!done) check_failed(done.error().message);
}

}  // namespace baton::cpu
