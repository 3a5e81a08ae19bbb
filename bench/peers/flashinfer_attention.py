#!/usr/bin/env python3
"""FlashInfer's and FlashAttention-3's decode attention on W1, W2 and W3 (docs/workloads.md), beside `baton bench attention`.

    bench/peers/flashinfer_attention.py --tables W2,W1,W3                    needs flashinfer_pack.py's archive
    bench/peers/flashinfer_attention.py --library fa3 --tables W2,W3         FlashAttention-3 as vLLM calls it (engine_pack.py)

Pages of 16 tokens, scattered. The prefix is stored once: plain variants read its pages for each request, cascades read
it once and merge. Calls are recorded in a CUDA graph, over layers of at least 256 MiB in all; times are microseconds
per call, one for each replay. The first output of each variant is compared with float32 attention; a wrong one is a row
that says so. FlashInfer compiles a module for each kind of variant first, in parallel (--compile-only does no more): 20
to 180 s each.
"""

import argparse
import concurrent.futures
import math
import subprocess
import sys
import time
from pathlib import Path

import torch
from peer_rows import ROOT, Rows, failure
from torch_attention import HEAD_DIM, W1_LINES, W2_SHARED, graph_times, layers_for, numbers_of, point_of

DEVICE, PAGE = "cuda", 16
FILES = {"W1": (2, "experiment_02_flash_decoding.json"), "W2": (1, "experiment_01_attention.json")}
FILES["W3"] = FILES["W2"]
TABLES = {
    "W1": (16, 2, "float16", [(batch, 0, length) for batch, length in W1_LINES]),
    "W2": (52, 52, "bfloat16", [(32, shared, 128) for shared in W2_SHARED]),
    "W3": (32, 8, "bfloat16",
           [(batch, shared, own) for own in (128, 512) for batch in (8, 32, 128) for shared in (512, 2048, 8192, 32768)]),
}  # fmt: skip
WORKSPACE_BYTES = 512 << 20
workspaces = {}


def workspace(name):
    if name not in workspaces:
        workspaces[name] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)
    return workspaces[name]


def int32(values):
    return torch.as_tensor(values, dtype=torch.int32, device=DEVICE)


def empty(n):
    return torch.empty(n, dtype=torch.int32, device=DEVICE)


class Case:
    """Keys, values, queries and page tables of one line of a table."""

    def __init__(self, heads, kv_heads, dtype, batch, shared, own):
        self.heads, self.kv_heads, self.batch, self.shared, self.own = heads, kv_heads, batch, shared, own
        self.dtype, self.length, self.scale = dtype, shared + own, 1 / math.sqrt(HEAD_DIM)
        self.prefix_pages, self.own_pages = shared // PAGE, own // PAGE
        n_pages = self.prefix_pages + batch * self.own_pages
        self.n_layers = layers_for(4 * kv_heads * HEAD_DIM * (shared + batch * own))
        self.kv = [torch.randn(n_pages, 2, PAGE, kv_heads, HEAD_DIM, device=DEVICE, dtype=dtype) for _ in range(self.n_layers)]
        self.q = torch.randn(batch, heads, HEAD_DIM, device=DEVICE, dtype=dtype)
        pages = torch.randperm(n_pages, device=DEVICE).int()
        self.prefix = pages[: self.prefix_pages].contiguous()
        self.owned = pages[self.prefix_pages :].view(batch, self.own_pages).contiguous()
        self.table = torch.cat([self.prefix.expand(batch, -1), self.owned], 1).contiguous()
        self.rows = torch.arange(batch + 1, dtype=torch.int32, device=DEVICE)
        self.last = torch.full((batch,), PAGE, dtype=torch.int32, device=DEVICE)
        self.lengths = torch.full((batch,), self.length, dtype=torch.int32, device=DEVICE)
        self.sampled = [0, batch // 2, batch - 1]
        self.expected = torch.stack([self.reference(row) for row in self.sampled])

    def reference(self, row):
        """Float32 attention of a request on layer 0."""
        kv = self.kv[0][self.table[row].long()].float()
        k, v = (kv[:, i].reshape(self.length, self.kv_heads, HEAD_DIM).transpose(0, 1) for i in (0, 1))
        q = self.q[row].float().view(self.kv_heads, -1, HEAD_DIM)
        return (torch.softmax(q @ k.transpose(1, 2) * self.scale, -1) @ v).view(self.heads, HEAD_DIM)

    def check(self, output):
        """Errors: ValueError if the output is not attention."""
        got = output.view(self.batch, self.heads, HEAD_DIM)[self.sampled].float()
        error = ((got - self.expected).norm() / self.expected.norm()).item()
        if not error < 1e-2:
            raise ValueError(f"wrong: differs from float32 attention by {error:.2e}")


def shape_of(case):
    """The arguments of FlashInfer's plan() that say what is computed."""
    return (case.heads, case.kv_heads, HEAD_DIM, PAGE), {"q_data_type": case.dtype, "kv_data_type": case.dtype}


def decode_wrapper(case, indptr, indices, n_pages, tensor_cores):
    import flashinfer

    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace("decode"), "NHD", use_cuda_graph=True, use_tensor_cores=tensor_cores,
        paged_kv_indptr_buffer=empty(case.batch + 1), paged_kv_indices_buffer=empty(case.batch * n_pages),
        paged_kv_last_page_len_buffer=empty(case.batch),
    )  # fmt: skip
    sizes, types = shape_of(case)
    wrapper.plan(indptr, indices, case.last, *sizes, **types)
    return wrapper


def flashinfer_decode(case, tensor_cores):
    n_pages = case.prefix_pages + case.own_pages
    wrapper = decode_wrapper(case, case.rows * n_pages, case.table.view(-1), n_pages, tensor_cores)
    output = torch.empty_like(case.q)
    return lambda i: wrapper.run(case.q, case.kv[i], out=output)


def flashinfer_xqa(case):
    from flashinfer.decode import xqa_batch_decode_with_kv_cache

    output, scratch = torch.empty_like(case.q), workspace("xqa").zero_()
    return lambda i: xqa_batch_decode_with_kv_cache(
        case.q, case.kv[i], scratch, case.table, case.lengths, case.length, bmm1_scale=case.scale, bmm2_scale=1.0, out=output,
        kv_layout="NHD",
    )  # fmt: skip


def flashinfer_batch_attention(case):
    import flashinfer

    wrapper = flashinfer.BatchAttention(kv_layout="NHD")
    indptr = case.rows * (case.prefix_pages + case.own_pages)
    wrapper.plan(case.rows, indptr, case.table.view(-1), case.lengths, case.heads, case.kv_heads, HEAD_DIM, HEAD_DIM, PAGE,
                 causal=False, sm_scale=case.scale, q_data_type=case.dtype, kv_data_type=case.dtype)  # fmt: skip
    output, lse = torch.empty_like(case.q), torch.empty(case.batch, case.heads, device=DEVICE, dtype=torch.float32)

    def call(i):
        wrapper.run(case.q, case.kv[i], out=output, lse=lse)
        return output

    return call


def flashinfer_cascade(case):
    import flashinfer

    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(
        2, workspace("cascade"), "NHD", use_cuda_graph=True, qo_indptr_buf_arr=[empty(2), empty(case.batch + 1)],
        paged_kv_indptr_buf_arr=[empty(2), empty(case.batch + 1)],
        paged_kv_indices_buf_arr=[empty(case.prefix_pages), empty(case.batch * case.own_pages)],
        paged_kv_last_page_len_buf_arr=[empty(1), empty(case.batch)],
    )  # fmt: skip
    sizes, types = shape_of(case)
    wrapper.plan([int32([0, case.batch]), case.rows], [int32([0, case.prefix_pages]), case.rows * case.own_pages],
                 [case.prefix, case.owned.view(-1)], [int32([PAGE]), case.last], *sizes, **types)  # fmt: skip
    return lambda i: wrapper.run(case.q, case.kv[i])


def flashinfer_two(case, backend, tensor_cores):
    """The prefix by a prefill kernel, own parts by a decode kernel, and a merge."""
    import flashinfer

    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        workspace("prefill"), "NHD", use_cuda_graph=True, backend=backend, qo_indptr_buf=empty(2), paged_kv_indptr_buf=empty(2),
        paged_kv_indices_buf=empty(case.prefix_pages), paged_kv_last_page_len_buf=empty(1),
    )  # fmt: skip
    sizes, types = shape_of(case)
    prefill.plan(int32([0, case.batch]), int32([0, case.prefix_pages]), case.prefix, int32([PAGE]), *sizes, causal=False, **types)
    decode = decode_wrapper(case, case.rows * case.own_pages, case.owned.view(-1), case.own_pages, tensor_cores)

    def call(i):
        output, lse = prefill.run(case.q, case.kv[i], return_lse=True)
        own_output, own_lse = decode.run(case.q, case.kv[i], return_lse=True)
        flashinfer.merge_state_in_place(output, lse, own_output, own_lse)
        return output

    return call


def fa3_metadata(case, batch, max_q, max_k, lengths, ends, causal):
    from vllm.vllm_flash_attn import get_scheduler_metadata

    return get_scheduler_metadata(
        batch_size=batch, max_seqlen_q=max_q, max_seqlen_k=max_k, num_heads_q=case.heads, num_heads_kv=case.kv_heads,
        headdim=HEAD_DIM, cache_seqlens=lengths, qkv_dtype=case.dtype, cu_seqlens_q=ends, page_size=PAGE, causal=causal,
        num_splits=0,
    )  # fmt: skip


def fa3_plain(case):
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    metadata = fa3_metadata(case, case.batch, 1, case.length, case.lengths, case.rows, True)
    output = torch.empty_like(case.q)

    def call(i):
        flash_attn_varlen_func(
            q=case.q, k=case.kv[i][:, 0], v=case.kv[i][:, 1], out=output, cu_seqlens_q=case.rows, max_seqlen_q=1,
            seqused_k=case.lengths, max_seqlen_k=case.length, softmax_scale=case.scale, causal=True, block_table=case.table,
            scheduler_metadata=metadata, fa_version=3, num_splits=0,
        )  # fmt: skip
        return output

    return call


def fa3_cascade(case):
    from vllm.v1.attention.backends.flash_attn import cascade_attention

    ends, prefix_length, own_lengths = int32([0, case.batch]), int32([case.shared]), case.lengths - case.shared
    of_prefix = fa3_metadata(case, 1, case.batch, case.shared, prefix_length, ends, False)
    of_own = fa3_metadata(case, case.batch, 1, case.own, own_lengths, case.rows, True)
    output = torch.empty_like(case.q)

    def call(i):
        cascade_attention(
            output, case.q, case.kv[i][:, 0], case.kv[i][:, 1], cu_query_lens=case.rows, max_query_len=1,
            cu_prefix_query_lens=ends, prefix_kv_lens=prefix_length, suffix_kv_lens=own_lengths, max_kv_len=case.length,
            softmax_scale=case.scale, alibi_slopes=None, sliding_window=(-1, -1), logits_soft_cap=0.0, block_table=case.table,
            common_prefix_len=case.shared, max_num_splits=0, fa_version=3, prefix_scheduler_metadata=of_prefix,
            suffix_scheduler_metadata=of_own,
        )  # fmt: skip
        return output

    return call


PLAIN = {
    "flashinfer": {
        "FlashInfer decode": lambda case: flashinfer_decode(case, False),
        "FlashInfer decode, tensor cores": lambda case: flashinfer_decode(case, True),
        "FlashInfer XQA": flashinfer_xqa,
        "FlashInfer BatchAttention": flashinfer_batch_attention,
    },
    "fa3": {"FlashAttention-3": fa3_plain},
}
SHARED = {
    "flashinfer": {
        "FlashInfer cascade": flashinfer_cascade,
        "FlashInfer fa2 + decode": lambda case: flashinfer_two(case, "fa2", False),
        "FlashInfer fa3 + decode": lambda case: flashinfer_two(case, "fa3", False),
        "FlashInfer fa3 + decode, tensor cores": lambda case: flashinfer_two(case, "fa3", True),
    },
    "fa3": {"FlashAttention-3 cascade": fa3_cascade},
}


def compile_all(options):
    """Each variant once on a small case, in processes of their own: the modules are compiled at the same time."""
    names = [(table, name) for table in options.tables
             for name in [*PLAIN[options.library], *(SHARED[options.library] if table != "W1" else {})]]  # fmt: skip

    def compile_one(table_and_name):
        begin = time.monotonic()
        command = [sys.executable, __file__, "--library", options.library, "--compile-one", "/".join(table_and_name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(options.seconds, 1))
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        print(f"compiled {'/'.join(table_and_name)}: {done.returncode}, {time.monotonic() - begin:.0f} s {last}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(compile_one, names))


def compile_one(library, name):
    table, _, arm = name.partition("/")
    heads, kv_heads, dtype, lines = TABLES[table]
    shared = 64 if lines[0][1] else 0
    case = Case(heads, kv_heads, getattr(torch, dtype), 8, shared, 64)
    case.check(({**PLAIN[library], **SHARED[library]}[arm])(case)(0))
    torch.cuda.synchronize()


def measure_table(table, options, rows, deadline):
    heads, kv_heads, dtype, lines = TABLES[table]
    for batch, shared, own in lines:
        torch.cuda.empty_cache()
        case = Case(heads, kv_heads, getattr(torch, dtype), batch, shared, own)
        point = point_of(table, heads, kv_heads, batch, own, shared, dtype)
        for arm, make in {**PLAIN[options.library], **(SHARED[options.library] if shared else {})}.items():
            if time.monotonic() > deadline:
                print(f"{table} {batch} x {shared} + {own}: left out, no time", flush=True)
                return
            rows.begins()
            try:
                call = make(case)
                case.check(call(0))
                numbers = numbers_of(graph_times(call, case.n_layers, options.replays), [])
                rows.add(options.library, point, arm, numbers)
                print(f"{arm}: {table} {batch} x {shared} + {own}: {numbers['median_us']:.1f} us", flush=True)
            except Exception as error:  # a variant that refuses a shape is a row, not an end
                torch.cuda.synchronize()
                rows.add(options.library, point, arm, {}, failure(error))
                print(f"{arm}: {table} {batch} x {shared} + {own}: {failure(error)}", flush=True)
        del case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=PLAIN, default="flashinfer")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["W2", "W1", "W3"])
    parser.add_argument("--seconds", type=float, default=300, help="no variant begins later than this")
    parser.add_argument("--replays", type=int, default=20, help="timed replays of each graph")
    parser.add_argument("--jobs", type=int, default=8, help="modules compiled at the same time")
    parser.add_argument("--compile-only", action="store_true", help="compile, and measure nothing")
    parser.add_argument("--compile-one", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help="folder of the result files")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    if options.compile_one:
        compile_one(options.library, options.compile_one)
        return
    torch.manual_seed(0)
    if options.library == "flashinfer":
        import flashinfer

        version = f"flashinfer {flashinfer.__version__}"
        compile_all(options)
    else:
        import vllm

        version = f"FlashAttention-3 of vllm {vllm.__version__}"
    for table in [] if options.compile_only else options.tables:
        experiment, name = FILES[table]
        measure_table(table, options, Rows(options.results / name, experiment, version), deadline)


if __name__ == "__main__":
    main()
