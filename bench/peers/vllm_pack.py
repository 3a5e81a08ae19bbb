#!/usr/bin/env python3
"""Fetches vLLM 0.24.0 and packs what a Llama on a Hopper GPU needs of it, to be carried to a machine without a network.

    bench/peers/vllm_pack.py --out FOLDER          FOLDER/vllm.tar.xz and FOLDER/vllm-libraries.tar.xz, 17 MiB together

bench/peers/run_peers.sh unpacks them there and runs bench/peers/vllm_engine.py. That machine must have Python 3.12,
PyTorch 2.11 for CUDA 13, and Transformers 5.17.

What is left out: device code of other architectures, quantised, mixture-of-experts and state-space kernels; of
FlashAttention-3 all but head size 128 in bfloat16 and float16 without soft-capped scores; FlashAttention-2, FlashMLA,
DeepGEMM; the server in Rust; xgrammar's static library; debug symbols. The packages are unchanged otherwise. They are
never committed.

Here: pip with PyPI, the package zstandard, c++filt, strip, tar, xz, and 2 GB of disk. Takes four minutes on two cores.
"""

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import device_code

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARCHITECTURE = 90
PYTHON, ABIS = "3.12", ("cp312", "abi3", "none")
# pip matches the number of a platform exactly.
PLATFORMS = [f"manylinux{v}_x86_64" for v in (1, 2010, 2014, *(f"_2_{n}" for n in range(5, 40)))] + ["any"]
LEFT_OUT = [
    "vllm/_moe_C*", "vllm/_flashmla*", "vllm/_qutlass*", "vllm/_rust_tool*", "vllm/vllm-rs", "vllm/benchmarks",
    "vllm/vllm_flash_attn/_vllm_fa2*", "vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100",
    "vllm/model_executor/layers/fused_moe/configs/*.json",
    "xgrammar/lib", "xgrammar/include", "tvm_ffi/include", "*/tests", "*/_tests",
]  # fmt: skip
CORE_KERNELS = re.compile(
    r"vllm::(activation_kernel|act_and_mul_kernel|rotary_embedding_kernel|rms_norm_kernel|merge_attn_states_kernel"
    r"|reshape_and_cache_flash_kernel|apply_repetition_penalties_kernel)"
)
# Template arguments of FlashAttention-3's main loop: head size, head size of the values, type; the third flag is soft capping.
FORWARD = re.compile(
    r"CollectiveMainloopFwdSm90<\d+, cute::tuple<[^()]*?>, cute::tuple<cute::C<\d+>, cute::C<\d+>, cute::C<(\d+)> >, "
    r"(\d+), ([\w:]+), float, cutlass::arch::Sm90, \w+, \w+, (\w+),"
)
FORWARD_TYPES = ("cutlass::bfloat16_t", "cutlass::half_t")


def is_core_kernel(names):
    return bool(CORE_KERNELS.search(names))


def is_forward_of_llama(names):
    """Also true for a file without a main loop: it merges splits or plans."""
    if "CollectiveMainloop" not in names:
        return True
    found = FORWARD.findall(names)
    return {(head, value_head, soft_capped, dtype in FORWARD_TYPES) for head, value_head, dtype, soft_capped in found} == {
        ("128", "128", "false", True)
    }


PRUNED = {
    "vllm/_C_stable_libtorch.abi3.so": is_core_kernel,
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": is_forward_of_llama,
}


def say(text):
    print(f"vllm_pack.py: {text}", flush=True)


def download(wheels):
    wheels.mkdir(parents=True, exist_ok=True)
    if list(wheels.glob("vllm-*.whl")):
        return
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
               "--python-version", PYTHON, "-d", wheels, "-r", HERE / "vllm_requirements.txt"]  # fmt: skip
    for abi in ABIS:
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    say("downloading vLLM and its packages")
    subprocess.run(command, check=True)


def unpack(wheels, site):
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for pattern in LEFT_OUT:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def shrink(site):
    libraries = sorted(path for path in site.rglob("*") if ".so" in path.suffixes and path.is_file())
    for library in libraries:
        name = str(library.relative_to(site))
        if name in PRUNED:
            kept, in_all = device_code.prune(library, library, ARCHITECTURE, PRUNED[name])
            say(f"{name}: {kept / 1e6:.1f} of {in_all / 1e6:.1f} MB of device code kept")
        else:
            library.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
    return [str(library.relative_to(site)) for library in libraries]


def pack(site, names, archive, filters):
    """Files by name into an xz archive. `filters` are xz's, for what the files hold."""
    listed = "".join(f"{name}\n" for name in sorted(names)).encode()
    tar = subprocess.run(["tar", "--owner=0", "-C", site, "-c", "-T", "-"], input=listed, capture_output=True, check=True)
    archive.write_bytes(subprocess.run(["xz", "-c", *filters], input=tar.stdout, capture_output=True, check=True).stdout)
    say(f"{archive.name}: {archive.stat().st_size / 2**20:.1f} MiB of {len(tar.stdout) / 2**20:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the archives")
    parser.add_argument("--work", type=Path, default=ROOT / "build/peers/vllm", help="folder for downloads and unpacked files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    download(options.work / "wheels")
    site = options.work / "site"
    unpack(options.work / "wheels", site)
    libraries = set(shrink(site))
    others = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()} - libraries
    size = "lzma2=preset=9e,dict=192MiB"
    pack(site, others, options.out / "vllm.tar.xz", [f"--{size}"])
    pack(site, libraries, options.out / "vllm-libraries.tar.xz", ["--x86", f"--{size}"])


if __name__ == "__main__":
    main()
