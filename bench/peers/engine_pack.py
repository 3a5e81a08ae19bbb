#!/usr/bin/env python3
"""Fetches vLLM or SGLang and packs what the measured models need of it on a Hopper GPU, for a machine without a network.

    bench/peers/engine_pack.py vllm --out FOLDER          vLLM 0.26.0: vllm.tar.xz, vllm-libraries.tar.xz, 21 MiB together
    bench/peers/engine_pack.py vllm-dense --out FOLDER    for dense models in bfloat16 with heads of 128 alone: 18 MiB
    bench/peers/engine_pack.py sglang --out FOLDER        SGLang 0.5.15, used with vLLM's and FlashInfer's packs beside it

bench/peers/run_peers.sh unpacks them there and runs bench/peers/vllm_engine.py or sglang_engine.py. That machine must
have Python 3.12, PyTorch 2.11 for CUDA 13, and Transformers 5.17 (SGLang brings its own).

What is left out: device code of other architectures; quantised kernels but those of FP8 and of int4 in groups by
Machete and Marlin, in bfloat16; Marlin's experts and Mamba's scan (Triton's kernels are source and stay: experts, Gated
DeltaNet, gpt-oss); tuned tiles of experts but those of an H200; of FlashAttention-3 all but head size 128 in bfloat16
(vLLM's: and float16, and 64 and 256 in bfloat16 for gpt-oss and Qwen3.5) without soft-capped scores; FlashAttention-2,
FlashMLA, DeepGEMM; static libraries; tests; debug symbols. The packages are unchanged otherwise. They are never committed.

Here: pip with PyPI, the package zstandard, c++filt, strip, tar, xz, and 5 GB of disk. Takes four minutes on two cores.
"""

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import device_code

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARCHITECTURE = 90
PYTHON, ABIS = "3.12", ("cp312", "abi3", "none")
# pip matches the number of a platform exactly.
PLATFORMS = [f"manylinux{v}_x86_64" for v in (1, 2010, 2014, *(f"_2_{n}" for n in range(5, 40)))] + ["any"]
CORE_KERNELS = re.compile(
    r"vllm::(activation_kernel|act_and_mul_kernel|rotary_embedding_kernel|rms_norm_kernel|merge_attn_states_kernel"
    r"|reshape_and_cache_flash_kernel|apply_repetition_penalties_kernel|cross_device_reduce_[12]stage)"
)
# Experts: their choice, their order, their sum, and CUTLASS's grouped FP8 matmuls with what prepares them.
EXPERT_KERNELS = re.compile(
    r"vllm::moe::(moe_align_block_size_kernel|topkGating<|moe_sum_kernel)|router_gemm_kernel_|shuffleInputRowsKernel"
    r"|vllm::cutlass_3x_group_gemm<|get_group_gemm_starts|compute_expert_offsets"
)
# What weights in FP8 and in int4 with groups need: CUTLASS's FP8 matmuls, what rounds activations for them, Machete, Marlin.
# Marlin's and Machete's template arguments: the type of x, the type of the weight; Marlin numbers them.
MARLIN_BFLOAT16, MARLIN_WEIGHTS = 1125899906909960, {"uint4b8": 1125899907892224, "float8_e4m3fn": 2814749767172868}
QUANTISED_KERNELS = re.compile(
    r"vllm::(cutlass_3x_gemm_sm90_fp8<|(dynamic_per_token_)?scaled_fp8_quant_kernel|act_and_mul_quant_kernel|rms_norm_\w+_quant_kernel)"
    r"|machete::MacheteCollectiveMma<cute::tuple<cutlass::vllm_biased_integer_subbyte<4, 8, false>, cutlass::bfloat16_t"
    r"|machete::prepack_B_kernel<\d+, machete::PrepackedLayoutBTemplate<cutlass::bfloat16_t"
    rf"|marlin::(Marlin<{MARLIN_BFLOAT16}l, ({'|'.join(map(str, MARLIN_WEIGHTS.values()))})l,|gptq_marlin_repack_kernel)"
)
# Template arguments of FlashAttention-3's main loop: head size, head size of the values, type; the third flag is soft capping.
FORWARD = re.compile(
    r"CollectiveMainloopFwdSm90<\d+, cute::tuple<[^()]*?>, cute::tuple<cute::C<\d+>, cute::C<\d+>, cute::C<(\d+)> >, "
    r"(\d+), ([\w:]+), float, cutlass::arch::Sm90, \w+, \w+, (\w+),"
)
BFLOAT16, FLOAT16 = "cutlass::bfloat16_t", "cutlass::half_t"


def is_core_kernel(names):
    return any(wanted.search(names) for wanted in (CORE_KERNELS, QUANTISED_KERNELS, EXPERT_KERNELS))


def is_dense_kernel(names):
    return CORE_KERNELS.search(names) is not None


def is_forward_of(*wanted):
    """Whether a file holds FlashAttention-3's forward pass of one of these (head size, type), or merges splits, or plans."""

    def is_wanted(names):
        if "Collective" not in names:
            return True
        found = {
            (int(head), dtype) if head == value_head and soft_capped == "false" else None
            for head, value_head, dtype, soft_capped in FORWARD.findall(names)
        }
        return bool(found) and found <= set(wanted)

    return is_wanted


@dataclasses.dataclass(frozen=True)
class Recipe:
    left_out: tuple[str, ...]
    pruned: dict[str, Callable[[str], bool]]  # library: which of its source files are kept, by the names of their kernels


LEFT_OUT_OF_VLLM = (
    "vllm/_flashmla*", "vllm/_qutlass*", "vllm/_rust_tool*", "vllm/vllm-rs", "vllm/benchmarks",
    "vllm/vllm_flash_attn/_vllm_fa2*", "vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100",
    *(f"vllm/model_executor/layers/fused_moe/configs/*{name}*.json" for name in
      ("=AMD", "=Intel", "=NVIDIA_[!H]", "=NVIDIA_H[!2]", "=NVIDIA_H20[!0]")),
    "xgrammar/lib", "xgrammar/include", "*/tests", "*/_tests",
)  # fmt: skip
RECIPES = {
    "vllm-dense": Recipe(
        (*LEFT_OUT_OF_VLLM, "vllm/model_executor/layers/fused_moe/configs/*.json"),
        {
            "vllm/_C_stable_libtorch.abi3.so": is_dense_kernel,
            "vllm/_moe_C_stable_libtorch.abi3.so": is_dense_kernel,
            "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": is_forward_of((128, BFLOAT16)),
        },
    ),
    "vllm": Recipe(
        LEFT_OUT_OF_VLLM,
        {
            "vllm/_C_stable_libtorch.abi3.so": is_core_kernel,
            "vllm/_moe_C_stable_libtorch.abi3.so": is_core_kernel,
            "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": is_forward_of(
                *((head, BFLOAT16) for head in (64, 128, 256)), (128, FLOAT16)
            ),
        },
    ),
    "sglang": Recipe(
        (
            "sgl_kernel/sm100", "sgl_kernel/flashmla_ops*", "sglang/multimodal_gen", "sglang/test", "sglang/srt/grpc/_core*",
            "sglang/srt/layers/moe/**/configs/**/*.json", "sglang/srt/layers/quantization/configs", "jedi/third_party",
            "sglang/jit_kernel/trtllm_lora_temp", "torch_memory_saver_hook_mode_*_cu12*", "transformers/cli", "*/tests",
        ),
        {
            "sgl_kernel/flash_ops.abi3.so": is_forward_of((128, BFLOAT16)),
            "sgl_kernel/sm90/common_ops.abi3.so": bool,
        },
    ),
}  # fmt: skip


def say(text):
    print(f"engine_pack.py: {text}", flush=True)


def download(engine, wheels):
    wheels.mkdir(parents=True, exist_ok=True)
    if list(wheels.glob(f"{engine}-*.whl")):
        return
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
               "--python-version", PYTHON, "-d", wheels, "-r", HERE / f"requirements_{engine}.txt"]  # fmt: skip
    for abi in ABIS:
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    say(f"downloading {engine} and its packages")
    subprocess.run(command, check=True)


def unpack(wheels, site, left_out):
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for pattern in left_out:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def shrink(site, pruned):
    libraries = sorted(path for path in site.rglob("*") if ".so" in path.suffixes and path.is_file())
    for library in libraries:
        name = str(library.relative_to(site))
        if name in pruned:
            kept, in_all = device_code.prune(library, library, ARCHITECTURE, pruned[name])
            say(f"{name}: {kept / 1e6:.1f} of {in_all / 1e6:.1f} MB of device code kept")
        else:
            library.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
    return [str(library.relative_to(site)) for library in libraries]


def pack(site, names, archive, filters):
    """Files by name into an xz archive. `filters` are xz's, for what the files hold."""
    listed = "".join(f"{name}\n" for name in sorted(names)).encode()
    with archive.open("wb") as target:
        tar = subprocess.Popen(["tar", "--owner=0", "-C", site, "-c", "-T", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        packer = subprocess.Popen(["xz", "-c", *filters], stdin=tar.stdout, stdout=target)
        tar.stdin.write(listed)
        tar.stdin.close()
        tar.stdout.close()
        codes = tar.wait(), packer.wait()
    if any(codes):
        sys.exit(f"engine_pack.py: {archive}: tar and xz ended with {codes}")
    say(f"{archive.name}: {archive.stat().st_size / 2**20:.1f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=RECIPES)
    parser.add_argument("--out", type=Path, required=True, help="folder for the archives")
    parser.add_argument("--work", type=Path, default=ROOT / "build/peers", help="folder for downloads and unpacked files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    engine = options.engine.partition("-")[0]
    work, recipe = options.work / options.engine, RECIPES[options.engine]
    download(engine, options.work / engine / "wheels")
    site = work / "site"
    unpack(options.work / engine / "wheels", site, recipe.left_out)
    libraries = set(shrink(site, recipe.pruned))
    others = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()} - libraries
    size = "lzma2=preset=9e,dict=192MiB"
    pack(site, others, options.out / f"{engine}.tar.xz", [f"--{size}"])
    pack(site, libraries, options.out / f"{engine}-libraries.tar.xz", ["--x86", f"--{size}"])


if __name__ == "__main__":
    main()
