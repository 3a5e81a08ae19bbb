"""Tests of bench/peers/vllm_server.py: the made-up tokenizer, the order of loads, rows of failures, the table."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import engine_pack  # noqa: E402
import vllm_server  # noqa: E402

NUMBERS = {"num_prompts": 4, "completed": 4, "failed": 0, "duration": 1.0, "processors": 1.5, "processors_of": {"python3": 1.5}}


class StubRows:
    def __init__(self):
        self.rows = []

    def begins(self):
        pass

    def add(self, job, point, arm, numbers, error=None):
        self.rows.append((job, point, arm, numbers, error))


class StubServer:
    """Notes its loads; fails at the rates of `failing`."""

    def __init__(self, arm, loads, failing=()):
        self.arm, self.loads, self.failing, self.rows = arm, loads, failing, StubRows()

    def load(self, _options, rate, number, _folder):
        self.loads.append((number, rate, self.arm))
        if rate in self.failing:
            raise subprocess.TimeoutExpired("bench", 5)
        return NUMBERS | {key: 10 * rate + number for key in vllm_server.SHOWN}


def options_of(**more):
    given = {"shape": "110m", "shared": 64, "rates": [1.0, 2.0], "rounds": 2, "arrival_seconds": 1, "seconds": 9}
    return types.SimpleNamespace(**given | more)


class Model(unittest.TestCase):
    def test_each_id_has_a_text_of_its_own(self):
        vocabulary = vllm_server.made_up_tokenizer(32000)["model"]["vocab"]
        self.assertEqual(sorted(vocabulary.values()), list(range(32000)))
        self.assertEqual(vocabulary["\u0120w000300"], 300)  # the space before it, as byte-level vocabularies write it
        self.assertEqual((vocabulary["A"], vocabulary["\u0120"]), (65, 32))

    def test_the_folder_has_the_shape_and_the_tokenizer(self):
        with tempfile.TemporaryDirectory() as name:
            folder = vllm_server.write_model("110m", Path(name) / "model")
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.assertEqual(len(tokenizer["model"]["vocab"]), config["vocab_size"])


class Loads(unittest.TestCase):
    def run_loads(self, options, servers, deadline):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            results = {}
            vllm_server.run_loads(options, servers, Path(), deadline, results)
        return results, out.getvalue()

    def test_the_first_one_alternates(self):
        loads = []
        servers = [StubServer(arm, loads) for arm in ("vllm", "relay")]
        results, _ = self.run_loads(options_of(), servers, time.monotonic() + 99)
        self.assertEqual(loads, [(1, 1.0, "vllm"), (1, 1.0, "relay"), (1, 2.0, "relay"), (1, 2.0, "vllm"),
                                 (2, 1.0, "relay"), (2, 1.0, "vllm"), (2, 2.0, "vllm"), (2, 2.0, "relay")])  # fmt: skip
        self.assertEqual({key: len(rounds) for key, rounds in results.items()},
                         {(rate, arm): 2 for rate in (1.0, 2.0) for arm in ("vllm", "relay")})  # fmt: skip
        job, point, arm, numbers, error = servers[0].rows.rows[0]
        self.assertEqual((job, arm, error, numbers["processors"]), ("vllm-64-round-1", "vllm", None, 11.0))
        self.assertEqual((point["rate"], point["round"], point["requests"]), (1.0, 1, 4))

    def test_a_load_that_fails_is_a_row_and_the_next_one_runs(self):
        loads = []
        server = StubServer("vllm", loads, failing=(1.0,))
        results, text = self.run_loads(options_of(rounds=1), [server], time.monotonic() + 99)
        self.assertEqual(list(results), [(2.0, "vllm")])
        self.assertEqual((server.rows.rows[0][3], server.rows.rows[1][4]), ({}, None))
        self.assertIn("TimeoutExpired", server.rows.rows[0][4])
        self.assertIn("vllm 1/s round 1 FAILED: TimeoutExpired", text)

    def test_a_load_that_would_end_too_late_is_left_out(self):
        loads = []
        results, text = self.run_loads(options_of(arrival_seconds=60), [StubServer("vllm", loads)], time.monotonic() + 99)
        self.assertEqual((results, loads), ({}, []))
        self.assertIn("vllm 2/s round 2: left out", text)

    def test_the_table_has_medians_and_ends_and_only_what_ran(self):
        rounds = [dict.fromkeys(vllm_server.SHOWN, value) for value in (3.0, 1.0, 2.0)]
        lines = vllm_server.table({(16.0, "vllm"): rounds, (48.0, "relay"): rounds[:1]}).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].startswith("| 16 | vllm | 2 (1-3) | 2 (1-3) |"), lines[2])
        self.assertTrue(lines[3].startswith("| 48 | relay | 3 | 3 |"), lines[3])


class Processors(unittest.TestCase):
    def test_processes_of_a_group_are_read_and_others_are_not(self):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        try:
            end = time.monotonic() + 30
            while sum(vllm_server.processor_seconds(process.pid).values()) == 0 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(len(vllm_server.processor_seconds(process.pid)), 1)
            self.assertNotEqual(os.getpgid(0), process.pid)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(vllm_server.processor_seconds(process.pid), {})

    def test_shares_are_of_the_time_between_and_leave_out_the_idle(self):
        self.assertEqual(vllm_server.shares({"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 5.0, "c": 4.0}, 4), {"a": 0.5, "c": 1.0})


class Commands(unittest.TestCase):
    def test_both_servers_have_the_same_memory_and_as_many_sequences(self):
        options = types.SimpleNamespace(arm="vllm-cascade", kv_gb=40, baton="build/baton", device="cuda")
        theirs = list(map(str, vllm_server.vllm_command(options, "model", 1)))
        ours = list(map(str, vllm_server.baton_command(options, "model", 2)))
        for flag in ("--max-num-seqs", "--kv-cache-memory-bytes", "--load-format", "--served-model-name"):
            self.assertEqual(theirs[theirs.index(flag) + 1], ours[ours.index(flag) + 1], flag)
        self.assertIn("--no-disable-cascade-attn", theirs)
        self.assertIn("--enable-prefix-caching", theirs)

    def test_the_pack_of_dense_models_has_no_experts_and_no_quantised_kernels(self):
        self.assertTrue(engine_pack.is_dense_kernel("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(int)"))
        for other in ("void vllm::moe::topkGating<8, 256, 4, 16>(float const*)", "void vllm::scaled_fp8_quant_kernel<f>()", ""):
            self.assertFalse(engine_pack.is_dense_kernel(other), other)


if __name__ == "__main__":
    unittest.main()
