"""Tests of bench/peers: requests equal to Baton's, the points' flags, rows of an engine, pruned device code."""

import contextlib
import io
import json
import struct
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import device_code  # noqa: E402
import drawn_requests  # noqa: E402
import engine_measure  # noqa: E402
import engine_pack  # noqa: E402
import engine_points  # noqa: E402


class StubEngine:
    """Takes no time; refuses decode points of more than one request."""

    def __init__(self):
        self.n_forgotten = 0
        self.is_stopped = False
        self.known_step_ms = None

    def forget(self):
        self.n_forgotten += 1

    def whole(self, requests):
        return 0.25 + 0.001 * max(n for _, n in requests), 0

    def step_ms(self, prompts, n_new):
        if len(prompts) > 1:
            raise RuntimeError("no steps\nonly 3 of 9")
        return self.known_step_ms

    def settings(self):
        return {"stub": True}

    def stop(self):
        self.is_stopped = True


def elf_with(fatbin):
    """A shared object with nothing but the section .nv_fatbin."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    place = 64
    headers = [(0, 0, 0, 0), (1, 1, place, len(fatbin)), (12, 3, place + len(fatbin), len(names))]
    table = place + len(fatbin) + len(names)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, len(headers), 2)
    sections = [struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0) for name, kind, offset, size in headers]
    return head + fatbin + names + b"".join(sections)


def container(*entries):
    """One container with entries (kind, architecture, code); an entry's header has 64 bytes."""
    body = b""
    for kind, architecture, code in entries:
        header = bytearray(64)
        struct.pack_into("<HHIQ", header, 0, kind, 1, 64, len(code))
        struct.pack_into("<I", header, 28, architecture)
        body += bytes(header) + code
    return struct.pack("<IHHQ", device_code.CONTAINER_MAGIC, 1, 16, len(body)) + body


class PeersTest(unittest.TestCase):
    def test_drawn_tokens_are_those_of_the_program(self):
        # The numbers of tests/bench/dataset/dataset_test.cpp.
        self.assertEqual(drawn_requests.random_requests(1000, 1, 4, 7), [([451, 248, 767, 850], 7)])

    def test_requests_share_what_they_should(self):
        requests = drawn_requests.shared_prefix_requests(1000, 3, 4, 20, 5, 9)
        self.assertEqual(len(requests), 12)
        self.assertEqual(len({tuple(prompt[:20]) for prompt, _ in requests}), 3)
        self.assertEqual(len({tuple(prompt) for prompt, _ in requests}), 12)
        self.assertTrue(all((len(prompt), n) == (25, 9) for prompt, n in requests))

    def test_sharegpt_lengths_are_filtered_and_in_random_order(self):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "ShareGPT_stat.csv"
            table.write_text("3,50\n10,3\n2000,9\n1000,1100\n" + "".join(f"{n},{n + 1}\n" for n in range(4, 30)), encoding="utf-8")
            requests = drawn_requests.sharegpt_requests(1000, table, 100, 8)
            self.assertEqual(sorted((len(prompt) - 8, n) for prompt, n in requests), [(n, n + 1) for n in range(4, 30)])
            self.assertNotEqual([n for _, n in requests], sorted(n for _, n in requests))
            self.assertEqual(len({tuple(prompt[:8]) for prompt, _ in requests}), 1)
            self.assertEqual(engine_points.sharegpt_table(folder), table)

    def test_each_point_has_the_requests_it_says(self):
        for point in engine_points.POINTS.values():
            if point.kind == "job" and point.about["dataset"] != "sharegpt":
                requests, about = engine_points.requests_of(point), point.about
                self.assertEqual(len(requests), about["requests"], point.name)
                self.assertEqual({(len(prompt), n) for prompt, n in requests}, {(about["shared"] + about["own"], about["output"])})
            flags = dict(zip(point.dataset[::2], point.dataset[1::2], strict=True))
            self.assertEqual(flags.get("--dataset-name", "decode"), point.about["dataset"])

    def measured(self, *arguments):
        """Rows and printed lines of a run with a stub engine."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            with unittest.mock.patch.object(sys, "argv", ["engine", "--shape", "llama-3-8b", "--results", folder, *arguments]):
                options = engine_measure.parse_options("engine.py", "", {"stub": {}})
            engine = StubEngine()
            engine_measure.run(options, "stub 1", lambda: engine)
            self.assertTrue(engine.is_stopped)
            path = Path(folder) / "experiment_11_peers.json"
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else [], said.getvalue()

    def test_a_point_that_fails_is_a_row_and_the_next_one_runs(self):
        rows, _ = self.measured("--points", "strangers-256,decode-8b-32-2048,decode-8b-1-2048", "--runs", "2")
        self.assertEqual([row["job"] for row in rows], ["strangers-256", "decode-8b-32-2048", "decode-8b-1-2048"])
        self.assertEqual(rows[0]["numbers"]["elapsed_times"], [0.378, 0.378])
        self.assertEqual(rows[0]["numbers"]["total_output_tokens"], 256 * 128)
        self.assertEqual((rows[1]["numbers"], rows[1]["error"]), ({}, "RuntimeError: no steps / only 3 of 9"))
        self.assertAlmostEqual(rows[2]["numbers"]["step_ms"], 1.0)
        self.assertEqual([(row["arm"], row["commit"], row["experiment"]) for row in rows], [("stub", "stub 1", 11)] * 3)

    def test_no_point_begins_when_the_time_is_over(self):
        rows, said = self.measured("--points", "strangers-256", "--seconds", "-1")
        self.assertEqual(rows, [])
        self.assertIn("strangers-256: left out", said)

    def test_an_unknown_point_is_named(self):
        with self.assertRaisesRegex(SystemExit, "gsp-1x1"):
            self.measured("--points", "gsp-1x1")

    def test_device_code_of_other_architectures_and_kernels_becomes_zeroes(self):
        wanted, other = b".text._Z6wantedv\0" + bytes(15), b".text._Z5otherv\0" + bytes(16)
        library = elf_with(container((2, 80, wanted), (2, 90, wanted)) + container((1, 90, wanted), (2, 90, other)))
        self.assertEqual([entry[:2] for entry in device_code.entries(library)], [(2, 80), (2, 90), (1, 90), (2, 90)])
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(device_code.subprocess, "run") as run:
            run.return_value.stdout = b""
            source = Path(folder) / "library.so"
            source.write_bytes(library)
            run.side_effect = lambda command, **options: unittest.mock.Mock(stdout=options.get("input", b""))
            kept = device_code.prune(source, source, 90, lambda names: "wanted" in names)
            codes = [source.read_bytes()[begin:end] for _, _, begin, end in device_code.entries(source.read_bytes())]
        self.assertEqual(kept, (32, 128))
        self.assertEqual(codes, [bytes(32), wanted, bytes(32), bytes(32)])

    def test_the_forward_pass_of_a_llama_is_told_by_its_template_arguments(self):
        def names(head, dtype, soft_capped):
            tile = f"cute::tuple<cute::C<128>, cute::C<176>, cute::C<{head}> >"
            flags = f"cutlass::arch::Sm90, true, false, {soft_capped}, true"
            return f"CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1> >, {tile}, {head}, {dtype}, float, {flags}>"

        is_wanted = engine_pack.is_forward_of((engine_pack.BFLOAT16,))
        self.assertTrue(is_wanted(names(128, engine_pack.BFLOAT16, "false")))
        self.assertFalse(is_wanted(names(64, engine_pack.BFLOAT16, "false")))
        self.assertFalse(is_wanted(names(128, engine_pack.FLOAT16, "false")))
        self.assertFalse(is_wanted(names(128, engine_pack.BFLOAT16, "true")))
        self.assertFalse(is_wanted("flash::CollectiveMainloopFwdSm80<1>"))
        self.assertTrue(is_wanted("void flash::prepare_varlen_num_blocks_kernel<1, true>(int)"))


if __name__ == "__main__":
    unittest.main()
