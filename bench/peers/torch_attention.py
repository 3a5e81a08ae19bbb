#!/usr/bin/env python3
"""PyTorch's attention on the workloads W1 and W2 (docs/workloads.md), as rows beside those of `baton bench attention`.

    bench/peers/torch_attention.py                            both tables; about two minutes on an H200
    bench/peers/torch_attention.py --tables W1 --results DIR

W1, the Flash-Decoding table (experiment 2): eager (PyTorch's "math" attention), FlashAttention-2 and cuDNN as
scaled_dot_product_attention calls them, and "FlashAttention-2 unsplit": PyTorch's forward pass for packed sequences,
with the queries of a KV head as rows of one sequence. That call never cuts the keys, so it has one block of work for
each request and KV head, as before Flash-Decoding. The names of the kernels that ran are in each row.

W2, the RelayAttention figure (experiment 1): "no sharing" is FlashAttention-2 with a copy of the prefix for each
request; "torch relay" is the paper's three kernels: FlashAttention-2 over the prefix, over the own parts, and a fused
merge.

Calls are recorded in a CUDA graph whose layers go through at least 256 MiB of keys and values, so that no call finds
its data in the L2 cache; times are microseconds per call, one for each replay. Needs a GPU.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from peer_rows import ROOT, Rows, failure
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE, HEAD_DIM = "cuda", 128
W1_LINES = [(2**i, 65536 >> i) for i in range(8, -1, -1)] + [(1, 131072)]  # requests, own context
W2_SHARED = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
LEAST_ROTATED_BYTES = 256 << 20
MOST_COPY_BYTES = 60 << 30
FLASH = torch.ops.aten._scaled_dot_product_flash_attention


def graph_times(call, n_layers, replays):
    """Microseconds per call of each replay of a graph of at least 16 calls; call(i) works on layer i."""
    n_calls = -(-16 // n_layers) * n_layers
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(2):
            call(i % n_layers)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(i % n_layers) for i in range(n_calls)]
    times = []
    for i in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(round(begin.elapsed_time(end) * 1e3 / n_calls, 3))
    del kept
    return times


def kernels_of(call):
    """Names of the kernels of one call, without their template arguments; [] where the profiler does not run."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call(0)
            torch.cuda.synchronize()
        names = {event.key.removeprefix("void ").partition("<")[0] for event in profile.key_averages()}
        return sorted(name for name in names if not name.startswith(("cuda", "Activity", "Mem")))
    except RuntimeError:
        return []


def numbers_of(times, kernels):
    middle = statistics.median(times)
    return {"us": times, "median_us": round(middle, 3), "spread": round((max(times) - min(times)) / middle, 4), "kernels": kernels}


def measure(rows, options, point, arm, call, n_layers):
    """Measures and writes one row. A back end that refuses a shape is a row with the error."""
    name = f"{arm}: {point['requests']} requests, {point['shared']} shared, {point['own']} own"
    rows.begins()
    try:
        times = graph_times(call, n_layers, options.replays)
        numbers = numbers_of(times, kernels_of(call))
        rows.add("torch", point, arm, numbers)
        print(f"{name}: {numbers['median_us']:.1f} us", flush=True)
    except Exception as error:  # PyTorch says what it cannot do by many types
        torch.cuda.synchronize()
        rows.add("torch", point, arm, {}, failure(error))
        print(f"{name}: {failure(error)}", flush=True)


def point_of(table, heads, kv_heads, requests, own, shared, dtype):
    return {
        "heads": heads, "kv_heads": kv_heads, "head_dim": HEAD_DIM, "requests": requests, "own": own, "shared": shared,
        "groups": 1, "table": table, "kv_dtype": dtype,
    }  # fmt: skip


def rand(*shape, dtype):
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def layers_for(layer_bytes):
    return max(2, -(-LEAST_ROTATED_BYTES // layer_bytes))


def packed_forward(q, keys, values, batch, length, kv_heads):
    """call(i): FlashAttention-2's forward pass over packed sequences; a KV head's queries are rows of its sequence."""
    group = q.shape[1] // kv_heads
    rows = q.view(batch, kv_heads, group, HEAD_DIM).transpose(1, 2).reshape(batch * group, kv_heads, HEAD_DIM).contiguous()
    ends_q = torch.arange(0, (batch + 1) * group, group, device=DEVICE, dtype=torch.int32)
    ends_k = torch.arange(0, (batch + 1) * length, length, device=DEVICE, dtype=torch.int32)
    packed = [[x.transpose(1, 2).reshape(batch * length, kv_heads, HEAD_DIM).contiguous() for x in (k, v)]
              for k, v in zip(keys, values, strict=True)]  # fmt: skip

    def call(i):
        return torch.ops.aten._flash_attention_forward(rows, *packed[i], ends_q, ends_k, group, length, 0.0, False, False)[0]

    return call


def check_equal(got, expected, what):
    error = ((got.float() - expected.float()).norm() / expected.float().norm()).item()
    if not error < 1e-2:
        raise ValueError(f"{what} differs from eager attention by {error:.2e}")


def measure_w1(rows, options):
    heads, kv_heads, dtype = 16, 2, torch.float16
    for batch, length in W1_LINES:
        layers = layers_for(4 * batch * length * kv_heads * HEAD_DIM)
        keys, values = ([rand(batch, kv_heads, length, HEAD_DIM, dtype=dtype) for _ in range(layers)] for _ in range(2))
        q = rand(batch, heads, 1, HEAD_DIM, dtype=dtype)
        point = point_of("W1", heads, kv_heads, batch, length, 0, "float16")

        def plain(i, q=q, keys=keys, values=values):
            return F.scaled_dot_product_attention(q, keys[i], values[i], enable_gqa=True)

        backends = {
            "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
            "cuDNN": SDPBackend.CUDNN_ATTENTION,
            "eager": SDPBackend.MATH,
        }
        for arm, backend in backends.items():
            with sdpa_kernel(backend):
                measure(rows, options, point, arm, plain, layers)

        try:
            unsplit = packed_forward(q, keys, values, batch, length, kv_heads)
            with sdpa_kernel(SDPBackend.MATH):
                expected = plain(0).view(batch, kv_heads, heads // kv_heads, HEAD_DIM)
            check_equal(unsplit(0).view(batch, -1, kv_heads, HEAD_DIM).transpose(1, 2), expected, "unsplit FlashAttention-2")
            measure(rows, options, point, "FlashAttention-2 unsplit", unsplit, layers)
            del unsplit
        except (RuntimeError, TypeError, ValueError) as error:
            rows.add("torch", point, "FlashAttention-2 unsplit", {}, failure(error))
            print(f"FlashAttention-2 unsplit: {failure(error)}", flush=True)
        del keys, values, plain
        torch.cuda.empty_cache()


@torch.compile(dynamic=False)
def merge(prefix, prefix_lse, own, own_lse):
    weight = torch.sigmoid(prefix_lse - own_lse).unsqueeze(-1)
    return (prefix.float() * weight + own.float() * (1 - weight)).to(prefix.dtype)


def measure_w2(rows, options):
    heads, batch, own, dtype = 52, 32, 128, torch.bfloat16
    for shared in W2_SHARED:
        point = point_of("W2", heads, heads, batch, own, shared, "bfloat16")
        layers = layers_for(4 * heads * HEAD_DIM * (shared + batch * own))
        prefix_k, prefix_v = ([rand(1, heads, shared, HEAD_DIM, dtype=dtype) for _ in range(layers)] for _ in range(2))
        own_k, own_v = ([rand(batch, heads, own, HEAD_DIM, dtype=dtype) for _ in range(layers)] for _ in range(2))
        q = rand(batch, heads, 1, HEAD_DIM, dtype=dtype)
        q_of_all = q.permute(2, 1, 0, 3).contiguous()

        def relay(i, q=q, q_of_all=q_of_all, prefix_k=prefix_k, prefix_v=prefix_v, own_k=own_k, own_v=own_v):
            of_prefix, prefix_lse = FLASH(q_of_all, prefix_k[i], prefix_v[i])[:2]
            of_own, own_lse = FLASH(q, own_k[i], own_v[i])[:2]
            return merge(of_prefix.permute(2, 1, 0, 3), prefix_lse.permute(2, 1, 0), of_own, own_lse)

        measure(rows, options, point, "torch relay", relay, layers)
        copy_bytes = 4 * heads * HEAD_DIM * batch * (shared + own)
        n_copies = min(layers, layers_for(copy_bytes), max(1, MOST_COPY_BYTES // copy_bytes))
        full_k = [torch.cat([prefix_k[i].expand(batch, -1, -1, -1), own_k[i]], 2) for i in range(n_copies)]
        full_v = [torch.cat([prefix_v[i].expand(batch, -1, -1, -1), own_v[i]], 2) for i in range(n_copies)]

        def copies(i, q=q, full_k=full_k, full_v=full_v):
            return F.scaled_dot_product_attention(q, full_k[i], full_v[i])

        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            measure(rows, options, point, "no sharing", copies, n_copies)
        del full_k, full_v, copies, prefix_k, prefix_v, own_k, own_v, relay
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="W1,W2", help="W1, W2 or both, separated by a comma")
    parser.add_argument("--replays", type=int, default=20, help="timed replays of each graph")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help="folder of the result files")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_attention.py: PyTorch finds no GPU here")
    torch.manual_seed(0)
    begin, version = time.monotonic(), f"PyTorch {torch.__version__}"
    for table in options.tables.split(","):
        if table == "W1":
            measure_w1(Rows(options.results / "experiment_02_flash_decoding.json", 2, version), options)
        elif table == "W2":
            measure_w2(Rows(options.results / "experiment_01_attention.json", 1, version), options)
        else:
            sys.exit(f"torch_attention.py: --tables {table}: not W1 or W2")
    print(f"torch_attention.py: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
