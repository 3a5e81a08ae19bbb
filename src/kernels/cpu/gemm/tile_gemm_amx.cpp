/// The tile GEMM with AMX instructions.
#include "kernels/cpu/gemm/tile_gemm.h"
#include "kernels/cpu/gemm/tile_gemm_kernel.h"

namespace baton::cpu {

const SkinnyGemmKernel kTileGemm = run_tile_gemm<AmxTiles>;

}  // namespace baton::cpu
