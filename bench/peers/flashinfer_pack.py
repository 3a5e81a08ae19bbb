#!/usr/bin/env python3
"""Fetches FlashInfer and packs the part that attention of a Llama on a Hopper GPU needs, to be carried without a network.

    bench/peers/flashinfer_pack.py --out FOLDER                             for flashinfer_attention.py, 12 MiB
    bench/peers/flashinfer_pack.py --out FOLDER --version 0.6.12            the one that vLLM 0.24.0 takes, 5 MiB

FlashInfer compiles its kernels where they run, so that machine must have nvcc, ninja and PyTorch. Left out is the source
of kernels for other GPUs, of matmuls, mixtures of experts and communication. bench/peers/run_peers.sh
unpacks 0.6.12 into /tmp/flashinfer and other versions into /tmp/site_flashinfer, with the apache-tvm-ffi that they want.
Here: pip with PyPI, tar, xz. The packages are never committed.
"""

import argparse
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VLLM_VERSION = "0.6.12"
TVM_FFI = {VLLM_VERSION: "0.1.9"}  # vLLM's xgrammar wants this one; other versions of FlashInfer take the one below
NEWEST_TVM_FFI = "0.1.12"
PLATFORMS = [f"manylinux{v}_x86_64" for v in (1, 2010, 2014, *(f"_2_{n}" for n in range(5, 40)))] + ["any"]
SOURCE_FOLDERS = {"xqa"}  # of data/csrc; its own files, 1 MB, all stay: SGLang takes some that attention does not
LEFT_OUT = ["moe_ep", "data/cutlass/examples", "data/cutlass/python", "data/cutlass/test", "data/cutlass/docs"]
PYTHON_ONLY = (".cu", ".cuh", ".h", ".json", ".md", ".so")  # left out outside of data


def download(version, folder):
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"flashinfer-python=={version}", f"apache-tvm-ffi=={TVM_FFI.get(version, NEWEST_TVM_FFI)}"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
               "--python-version", "3.12", "-d", folder, *names]  # fmt: skip
    for abi in ("cp312", "abi3", "none"):
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def prune(package):
    for pattern in LEFT_OUT:
        for path in list(package.glob(pattern)):
            remove(path)
    for path in list((package / "data/csrc").iterdir()):
        if path.is_dir() and path.name not in SOURCE_FOLDERS:
            remove(path)
    for path in list(package.rglob("*")):
        if path.suffix in PYTHON_ONLY and package / "data" not in path.parents:
            path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the archive")
    parser.add_argument("--version", default="0.7.2.post1")
    parser.add_argument("--work", type=Path, default=ROOT / "build/peers/flashinfer", help="folder for downloads")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    work = options.work / options.version
    wheels = download(options.version, work / "wheels")
    site = work / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    prune(site / "flashinfer")
    name = "flashinfer" if options.version == VLLM_VERSION else "site_flashinfer"
    archive = options.out / f"{name}.tar.xz"
    tar = subprocess.run(["tar", "--owner=0", "-C", site, "-c", "."], capture_output=True, check=True).stdout
    packed = subprocess.run(["xz", "-c", "--lzma2=preset=9e,dict=192MiB"], input=tar, capture_output=True, check=True).stdout
    archive.write_bytes(packed)
    print(f"flashinfer_pack.py: {archive}: {len(packed) / 2**20:.1f} MiB of {len(tar) / 2**20:.0f}")


if __name__ == "__main__":
    main()
