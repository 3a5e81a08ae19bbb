#!/usr/bin/env python3
"""Checks that what must exist more than once does: operations in every backend, and tests for sources.

It proves that each device computes each operation, not that the devices cut them into the same files.

    tools/check_mirrors.py [ROOT]

Prints one line for each thing that is missing and exits 1, or one line and exits 0. Needs only Python's standard library.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

# Sources (patterns) that another test reaches: a source is tested by what is said about it, and these have no name outside.
TESTED_THROUGH = {
    "src/jinja/*.cpp": "tests/text/template/chat_template_test.cpp",
    "src/ranks/rank_handshake.cpp": "tests/ranks/rank_group_test.cpp",
    "src/ranks/rank_monitor.cpp": "tests/ranks/rank_group_test.cpp",
    "src/grammar/front/argument_texts.cpp": "tests/grammar/front/structural_tag_test.cpp",
    "src/parsers/*.cpp": "tests/parsers/message_parser_test.cpp",
    "src/server/routes/*.cpp": "tests/server/routes/routes_test.cpp",
    "src/server/prefixes/prefix_definition.cpp": "tests/server/prefixes/prefix_api_test.cpp",
    "src/bench/attention/attention_*.cpp": "tests/bench/attention/attention_bench_test.cpp",
    "src/bench/attention/read_rate.cpp": "tests/bench/attention/attention_bench_test.cpp",
    "src/bench/demo/demo.cpp": "tests/e2e/test_programs.py",
    "src/bench/demo/demo_flags.cpp": "tests/e2e/test_programs.py",
    "src/bench/engine/decode_bench.cpp": "tests/e2e/test_programs.py",
    "src/bench/http/http_exchange.cpp": "tests/bench/serve/serve_bench_test.cpp",
    "src/bench/serve/serve_flags.cpp": "tests/bench/serve/serve_bench_test.cpp",
    "src/bench/serve/serve_report.cpp": "tests/bench/serve/serve_bench_test.cpp",
    "src/bench/serve/serve_target.cpp": "tests/bench/serve/serve_bench_test.cpp",
    "src/bench/startup/startup_report.cpp": "tests/bench/startup/startup_bench_test.cpp",
    "src/bench/stream/stream_bench.cpp": "tests/e2e/test_streams.py",
    "src/bench/stream/stream_load.cpp": "tests/e2e/test_streams.py",
    "src/bench/http/load.cpp": "tests/bench/serve/serve_load_test.cpp",
    "src/apps/chat.cpp": "tests/e2e/test_programs.py",
    "src/apps/conversation.cpp": "tests/e2e/test_programs.py",
    "src/apps/line_reader.cpp": "tests/e2e/test_chat_terminal.py",
    "src/apps/flags.cpp": "tests/e2e/test_programs.py",
    "src/apps/generate.cpp": "tests/e2e/test_generate.py",
    "src/apps/serve.cpp": "tests/e2e/test_openai_client.py",
    "src/cli/model_flags.cpp": "tests/cli/options_test.cpp",
    "src/cli/serving.cpp": "tests/e2e/test_generate.py",
    "src/cli/progress.cpp": "tests/e2e/test_programs.py",
    "src/cli/rank_session.cpp": "tests/e2e/test_ranks.py",
    "src/cli/version.cpp": "tests/e2e/test_programs.py",
    "src/load/quantize/*.cpp": "tests/load/quantize_model_test.cpp",
    "src/engine/schedule/scheduler_mtp.cpp": "tests/engine/engine_mtp_test.cpp",
    "src/engine/step/draft_builder.cpp": "tests/engine/engine_mtp_test.cpp",
    "src/model/families/*.cpp": "tests/model/families_test.cpp",
    "src/model/source/head_matrices.cpp": "tests/model/head_matrices_test.cpp",
    "src/model/source/mtp.cpp": "tests/model/mtp_test.cpp",
    "src/model/source/kv_scales.cpp": "tests/model/kv_scales_test.cpp",
    "src/model/source/rounding*.cpp": "tests/model/rounding_test.cpp",
    "src/model/source/stacked_matrix.cpp": "tests/model/quantised_weights_test.cpp",
    "src/model/source/stored_layout.cpp": "tests/model/quantised_weights_test.cpp",
    "src/model/source/unpack.cpp": "tests/model/quantised_weights_test.cpp",
    "src/kernels/cpu/attention/attention_*.cpp": "tests/kernels/attention_test.cpp",
    "src/kernels/cpu/backend.cpp": "tests/kernels/small_ops_test.cpp",
    "src/kernels/cpu/ranks/collectives.cpp": "tests/kernels/collectives_test.cpp",
    "src/kernels/cpu/rows/embedding.cpp": "tests/kernels/small_ops_test.cpp",
    "src/kernels/cpu/gemm/skinny_gemm_*.cpp": "tests/kernels/skinny_gemm_test.cpp",
    "src/kernels/cpu/rows/row_math.cpp": "tests/kernels/activation_test.cpp",
    "src/kernels/cpu/schemes/int8*.cpp": "tests/kernels/scheme_int8_test.cpp",
    "src/kernels/cpu/schemes/*.cpp": "tests/kernels/scheme_gemm_test.cpp",
    "src/kernels/cuda/attention/*.cu": "tests/kernels/attention_test.cpp",
    "src/kernels/cuda/sampling/gather.cu": "tests/kernels/sampling_lists_test.cpp",
    "src/kernels/cuda/experts/combine_experts.cu": "tests/kernels/experts_test.cpp",
    "src/kernels/cuda/experts/grouped_skinny.cu": "tests/kernels/grouped_matmul_test.cpp",
    "src/kernels/cuda/experts/grouped_stream.cu": "tests/kernels/grouped_matmul_test.cpp",
    "src/kernels/cuda/experts/grouped_tiles.cu": "tests/kernels/grouped_matmul_test.cpp",
    "src/kernels/cuda/experts/pack_experts.cpp": "tests/kernels/grouped_scheme_test.cpp",
    "src/kernels/cuda/backend.cpp": "tests/kernels/small_ops_test.cpp",
    "src/kernels/cuda/async_transfers.cpp": "tests/engine/step/executor_test.cpp",
    "src/kernels/cuda/device/device_memory.cpp": "tests/kernels/small_ops_test.cpp",
    "src/kernels/cuda/gemm/bias.cu": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/chain_gemm.cu": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/cublas_matmul.cpp": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/equal_bits.cu": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/gated_map.cpp": "tests/kernels/gated_matmul_test.cpp",
    "src/kernels/cuda/gemm/broad_gated.cu": "tests/kernels/gated_matmul_test.cpp",
    "src/kernels/cuda/gemm/invariant_matmul.cpp": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/tensor_map.cpp": "tests/kernels/stream_gemm_test.cpp",
    "src/kernels/cuda/schemes/*.cu": "tests/kernels/scheme_matmul_test.cpp",
    "src/kernels/cuda/ranks/collectives.cpp": "tests/kernels/collectives_test.cpp",
    "src/kernels/cuda/ranks/join_parts.cu": "tests/kernels/collectives_test.cpp",
    "src/kernels/cuda/ranks/nccl.cpp": "tests/kernels/collectives_test.cpp",
    "src/kernels/cuda/ranks/one_shot.cu": "tests/kernels/collectives_test.cpp",
    "src/kernels/cuda/ranks/sum_parts.cu": "tests/kernels/collectives_test.cpp",
    "src/kernels/cuda/device/elements.cu": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/gemm/skinny_gemm.cu": "tests/kernels/matmul_test.cpp",
    "src/kernels/cuda/heads/*.cu": "tests/kernels/head_matmul_test.cpp",
    "src/kernels/cuda/states/*.cu": "tests/kernels/gated_delta_rule_test.cpp",
    "src/kernels/cuda/states/state_storage.cpp": "tests/kernels/gated_delta_rule_test.cpp",
    "src/kernels/cuda/rows/embedding.cu": "tests/kernels/small_ops_test.cpp",
    "src/kernels/cuda/device/read_bandwidth.cu": "tests/bench/attention/attention_bench_test.cpp",
}

# Sources without a test, and why none is owed.
UNTESTED = {
    "src/apps/main.cpp": "hands its arguments to the programs; the end-to-end tests start it",
    "src/bench/main.cpp": "hands its arguments to the benchmarks; the end-to-end tests start it",
}

OPERATION = re.compile(r"^void (\w+)\(Backend& backend\b", re.MULTILINE)
REGISTERED = re.compile(r"baton_tests\((\S+)")
TEST_CASE = re.compile(r"^\s*(TYPED_)?TEST(_[A-Z]+)*\(", re.MULTILINE)


def text_of(*paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


def check_operations(root):
    """Every operation of ops.h: its checks in ops.cpp, the seam in backend.h, a body on each device, a test."""
    kernels = root / "src/kernels"
    ops = OPERATION.findall(text_of(kernels / "ops.h"))
    if not ops:
        yield "src/kernels/ops.h: declares no operation (void NAME(Backend& backend, ...))"
    tests = text_of(*sorted((root / "tests/kernels").rglob("*_test.cpp")), *sorted((root / "tests/support").glob("*.h")))
    places = [
        ("src/kernels/ops.cpp", text_of(kernels / "ops.cpp"), r"^void {}\(Backend& backend\b"),
        ("src/kernels/backend.h", text_of(kernels / "backend.h"), r"virtual void {}\("),
        ("src/kernels/cpu/*", text_of(*sorted((kernels / "cpu").rglob("*.cpp"))), r"\b{}\("),
        ("tests/kernels/*_test.cpp", tests, r"\b{}\("),
    ]
    if (kernels / "cuda").exists():
        places.append(("src/kernels/cuda/*", text_of(*sorted((kernels / "cuda").rglob("*.c*"))), r"\b{}\("))
    for op in ops:
        for place, text, pattern in places:
            if not re.search(pattern.format(op), text, re.MULTILINE):
                yield f"{place}: operation {op} of src/kernels/ops.h is missing"


def has_test(source, tests):
    """Whether a source, relative to src/, has a test: in its folder or a folder above one of its name or of the first part of
    its name (jinja_test.cpp for jinja_filters.cpp), or one of its layer that includes its header. `tests` maps paths below
    tests/ to text."""
    include = f'#include "{source.with_suffix(".h").as_posix()}"'
    for test, text in tests.items():
        stem = test.stem.removesuffix("_test")
        is_near = test.parent in source.parents
        if is_near and (source.stem == stem or source.stem.startswith(stem + "_")):
            return True
        if test.parts[0] == source.parts[0] and include in text:
            return True
    return False


def is_excused(root, name):
    """Whether the lists above speak for a source."""
    if name in UNTESTED:
        return True
    return any(fnmatch(name, pattern) and (root / test).exists() for pattern, test in TESTED_THROUGH.items())


def check_tests(root):
    """Every source has a test, or a line in the lists above; every test file is built and has a case."""
    paths = sorted((root / "tests").rglob("*_test.cpp"))
    tests = {path.relative_to(root / "tests"): text_of(path) for path in paths}
    for path in sorted((root / "src").rglob("*.cpp")) + sorted((root / "src").rglob("*.cu")):
        source = path.relative_to(root / "src")
        name = path.relative_to(root).as_posix()
        tested = has_test(source, tests)
        if not tested and not is_excused(root, name):
            yield f"{name}: has no {source.stem}_test.cpp in tests/{source.parent.as_posix()}"
        if tested and name in UNTESTED:
            yield f"tools/check_mirrors.py: {name} has a test now; take it off the list UNTESTED"
    for name in sorted(UNTESTED):
        if not (root / name).exists():
            yield f"tools/check_mirrors.py: {name} on the list UNTESTED does not exist"
    lists = text_of(root / "tests/CMakeLists.txt")
    folders = set(REGISTERED.findall(lists))
    for test in paths:
        folder = test.relative_to(root / "tests").parts[0]
        if folder not in folders:
            yield f"tests/CMakeLists.txt: has no baton_tests({folder} ...), so {test.name} is never built"
        if not TEST_CASE.search(text_of(test)):
            yield f"{test.relative_to(root).as_posix()}: holds no test case"
    for folder in sorted(folders):
        for stray in sorted((root / "tests" / folder).rglob("*.cpp")):
            if not stray.stem.endswith("_test") and stray.relative_to(root / "tests").as_posix() not in lists:
                yield f"{stray.relative_to(root).as_posix()}: is not named *_test.cpp, so it is never built"


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    missing = [line for check in (check_operations, check_tests) for line in check(root)]
    for line in missing:
        print(line)
    if missing:
        print(f"check_mirrors: {len(missing)} missing")
        return 1
    print("check_mirrors: every operation has its body on each device and a test, and every source a test")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
