"""Tests of bench/peers: requests equal to Baton's, the points' flags, rows of an engine, pruned device code."""

import contextlib
import fcntl
import io
import json
import struct
import sys
import tempfile
import threading
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
import prefix_cases  # noqa: E402
import vllm_engine  # noqa: E402


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

    def first_tokens(self, prompts, n_new):
        return [(7.0, 528 * (len(prompt) // 528), list(range(n_new))) for prompt in prompts]

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
            expected = {"job": flags.get("--dataset-name"), "decode": "decode", "cached": "prefix-cache"}[point.kind]
            self.assertEqual(expected, point.about["dataset"])

    def measured(self, *arguments, file_name="experiment_11_peers.json", step_ms=None, n_failures=0):
        """Rows and printed lines of a run with a stub engine, which loads after so many failures."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            with unittest.mock.patch.object(sys, "argv", ["engine", "--shape", "llama-3-8b", "--results", folder, *arguments]):
                options = engine_measure.parse_options("engine.py", "", {"stub": {}, "other": {}}, engine_points.QUANTISED)
            engine = StubEngine()
            engine.known_step_ms = step_ms
            make = unittest.mock.Mock(side_effect=[RuntimeError("no kernel")] * n_failures + [engine])
            engine_measure.run(options, "stub 1", make)
            self.assertTrue(engine.is_stopped)
            path = Path(folder) / file_name
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else [], said.getvalue()

    def test_a_point_that_fails_is_a_row_and_the_next_one_runs(self):
        rows, _ = self.measured("--points", "strangers-256,decode-8b-32-2048,decode-8b-1-2048", "--runs", "2")
        self.assertEqual([row["job"] for row in rows], ["strangers-256", "decode-8b-32-2048", "decode-8b-1-2048"])
        self.assertEqual(rows[0]["numbers"]["elapsed_times"], [0.378, 0.378])
        self.assertEqual(rows[0]["numbers"]["total_output_tokens"], 256 * 128)
        self.assertEqual((rows[1]["numbers"], rows[1]["error"]), ({}, "RuntimeError: no steps / only 3 of 9"))
        self.assertAlmostEqual(rows[2]["numbers"]["step_ms"], 1.0)
        self.assertEqual([(row["arm"], row["commit"], row["experiment"]) for row in rows], [("stub", "stub 1", 11)] * 3)

    def test_steps_that_can_be_timed_are_checked_by_one_difference(self):
        rows, _ = self.measured("--points", "decode-8b-1-2048", step_ms=2.5)
        numbers = rows[0]["numbers"]
        self.assertEqual(numbers["step_ms_of_runs"], [2.5, 2.5, 2.5])
        self.assertEqual(len(numbers["step_ms_by_difference"]), 1)

    def test_runs_are_as_many_as_asked_for_without_the_difference(self):
        rows, _ = self.measured("--points", "decode-8b-1-2048", "--runs", "2", "--no-difference", step_ms=2.5)
        self.assertEqual(rows[0]["numbers"]["step_ms_of_runs"], [2.5, 2.5])
        self.assertEqual(rows[0]["numbers"]["step_ms_by_difference"], [])

    def test_another_arm_is_tried_where_one_does_not_load(self):
        rows, said = self.measured("--points", "decode-8b-1-2048", "--or", "other", step_ms=2.5, n_failures=1)
        self.assertEqual([(row["job"], row["arm"]) for row in rows], [("load", "stub"), ("decode-8b-1-2048", "other")])
        self.assertEqual(rows[0]["error"], "RuntimeError: no kernel")
        self.assertIn("stub llama-3-8b did not load: RuntimeError: no kernel", said)
        with self.assertRaisesRegex(RuntimeError, "no kernel"):
            self.measured("--points", "decode-8b-1-2048", "--or", "other", n_failures=2)
        with self.assertRaisesRegex(SystemExit, "--or third: no such arm"):
            self.measured("--points", "decode-8b-1-2048", "--or", "third")

    def test_cases_of_the_prefix_cache_are_one_row(self):
        rows, said = self.measured("--points", "cached-qwen3.5-4b", "--shape", "qwen3.5-4b",
                                   file_name="experiment_11_families.json")  # fmt: skip
        cases = rows[0]["numbers"]["cases"]
        self.assertEqual(len(cases), len(prefix_cases.CASES))
        self.assertEqual(cases[3]["requests"][-1], {"prompt": 2040, "known": 2000, "cached": 1584, "ms": 7.0})
        self.assertIn("shared 2000+40: found 1584 1584 1584 1584 of 2000 known, again 416, first 7.0 ms", said)

    def test_prompts_of_the_cases_share_what_the_program_s_share(self):
        prompts = {}

        def first_tokens(given, n_new):
            prompts.setdefault(case, []).extend(given)
            return [(0.0, 0, [5] * n_new) for _ in given]

        known = {}
        for number, case in enumerate(prefix_cases.CASES):
            known[case] = [request["known"] for request in prefix_cases.run(first_tokens, case, 1000, number)["requests"]]
        case = prefix_cases.Case
        self.assertEqual(known[case("shared", 480, 376)], [0, 480, 480, 480])
        self.assertEqual(known[case("sent-first", 480, 376)], [480] * 4)
        self.assertEqual([len(prompt) for prompt in prompts[case("sent-first", 480, 376)]], [480, *[856] * 4])
        self.assertEqual(known[case("identical", 480, 40)], [0, 520])
        self.assertEqual([len(prompts[case(kind, 480, 40)][-1]) for kind in ("turns", "reasoning")], [1024, 916])
        self.assertEqual(known[case("turns", 480, 40)][-1], 1024 - 40 - 1)  # the last token of an answer is never an input
        self.assertEqual(known[case("reasoning", 480, 40)][-1], 916 - 4 - 40 - 16)
        self.assertEqual((len(prompts[case("forks", 480, 40)]), known[case("forks", 480, 40)][:3]), (16, [0, 480, 480]))

    def test_rows_of_quantised_weights_are_those_of_experiment_13(self):
        for quantization in ("none", "int4"):
            arguments = ("--points", "decode-8b-1-2048", "--quantization", quantization)
            rows, _ = self.measured(*arguments, file_name="experiment_13_quantised.json")
            self.assertEqual([row["experiment"] for row in rows], [13])
            self.assertEqual(rows[0]["point"], {"model": "llama-3-8b", "shared": 2048, "own": 160, "new": 64, "requests": 1,
                                                "quantization": quantization})  # fmt: skip

    def test_engines_side_by_side_load_together_and_measure_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "turn"
            first, second = engine_measure.Turn(path), engine_measure.Turn(path)
            with path.open("w", encoding="utf-8") as other:
                with self.assertRaises(BlockingIOError):  # two are loading
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                waits = threading.Thread(target=second.wait)
                waits.start()
                first.file.close()  # as a process that ends does
                waits.join()
                with self.assertRaises(BlockingIOError):  # one measures
                    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            second.file.close()

    def config_for_vllm(self, shape, quantization):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(vllm_engine.model_folder(shape, quantization, folder)) / "config.json"
            return json.loads(path.read_text(encoding="utf-8"))

    def test_vllm_finds_int4_groups_in_the_config_of_a_shape(self):
        config = self.config_for_vllm("llama-3-8b", "int4")
        self.assertEqual(config["hidden_size"], 4096)
        weights = config["quantization_config"]["config_groups"]["group_0"]["weights"]
        self.assertEqual((weights["num_bits"], weights["group_size"], weights["symmetric"]), (4, 128, True))

    def test_other_weights_than_int4_are_not_in_the_config(self):
        self.assertNotIn("quantization_config", self.config_for_vllm("llama-3-8b", "fp8"))
        self.assertEqual(self.config_for_vllm("gpt-oss-20b", None)["quantization_config"], {"quant_method": "mxfp4"})

    def test_vllm_finds_the_query_scale_of_ministral(self):
        config = self.config_for_vllm("ministral-3-8b", None)
        stated = config["rope_parameters"]
        self.assertEqual(
            config["llama_4_scaling"],
            {"beta": stated["llama_4_scaling_beta"],
             "original_max_position_embeddings": stated["original_max_position_embeddings"]},
        )  # fmt: skip

    def test_vllm_finds_qwen_inside_a_model_with_a_vision_tower(self):
        for shape, architecture in (("qwen3.5-27b", "Qwen3_5ForConditionalGeneration"),
                                    ("qwen3.5-35b-a3b", "Qwen3_5MoeForConditionalGeneration")):  # fmt: skip
            config = self.config_for_vllm(shape, "fp8")
            shaped = json.loads((engine_points.shape_folder(shape) / "config.json").read_text(encoding="utf-8"))
            self.assertEqual(config["architectures"], [architecture])
            self.assertEqual(config["text_config"] | {"architectures": shaped["architectures"]}, shaped)
            with tempfile.TemporaryDirectory() as folder:
                arguments = vllm_engine.arguments(shape, "vllm-fine", 2, None, folder)
            self.assertTrue(arguments["language_model_only"])
            self.assertEqual((arguments["prefix_match_unit"], arguments["max_num_seqs"]), (16, 128))
            self.assertEqual(arguments["compilation_config"], {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128]})

    def test_rows_of_other_families_stand_in_a_file_of_their_own(self):
        rows, _ = self.measured("--points", "decode-gpt-oss-20b-8-2048", "--shape", "gpt-oss-20b",
                                file_name="experiment_11_families.json", step_ms=2.5)  # fmt: skip
        self.assertEqual([(row["experiment"], row["point"]["model"]) for row in rows], [(11, "gpt-oss-20b")])

    def test_forms_of_weights_that_an_arm_or_a_shape_cannot_have_are_refused(self):
        for arguments, message in (
            (("llama-3-8b", "--arm", "vllm-marlin"), "vllm-marlin is for --quantization"),
            (("gpt-oss-20b", "--quantization", "fp8"), "gpt-oss-20b has a form of its own"),
        ):
            refused = self.assertRaisesRegex(SystemExit, message)
            with unittest.mock.patch.object(sys, "argv", ["vllm_engine.py", "--shape", *arguments]), refused:
                vllm_engine.main()

    def test_only_what_must_be_drawn_again_is_sent_to_the_model(self):
        self.assertFalse(vllm_engine.is_prepared("llama-3-8b", "none"))
        self.assertTrue(vllm_engine.is_prepared("llama-3-8b", "fp8"))
        self.assertTrue(vllm_engine.is_prepared("gpt-oss-20b", None))

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
        kinds = [[entry[:2] for entry in container] for container in device_code.containers(library)]
        self.assertEqual(kinds, [[(2, 80), (2, 90)], [(1, 90), (2, 90)]])
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(device_code.subprocess, "run") as run:
            run.return_value.stdout = b""
            source = Path(folder) / "library.so"
            source.write_bytes(library)
            run.side_effect = lambda command, **options: unittest.mock.Mock(stdout=options.get("input", b""))
            kept = device_code.prune(source, source, 90, lambda names: "wanted" in names)
            pruned = source.read_bytes()
            codes = [pruned[begin:end] for found in device_code.containers(pruned) for _, _, begin, end in found]
        self.assertEqual(kept, (32, 128))
        self.assertEqual(codes, [bytes(32), wanted, bytes(32), bytes(32)])

    def test_ptx_serves_where_there_is_no_machine_code_of_the_architecture(self):
        entries = [(2, 80, 0, 1), (1, 75, 1, 2), (1, 80, 2, 3), (1, 100, 3, 4)]
        self.assertEqual(device_code.runs_on(entries, 90), [(1, 80, 2, 3)])
        self.assertEqual(device_code.runs_on([*entries, (2, 90, 4, 5), (2, 90, 5, 6)], 90), [(2, 90, 4, 5), (2, 90, 5, 6)])
        self.assertEqual(device_code.runs_on([(2, 80, 0, 1)], 90), [])
        ptx = b".visible .entry _Z6wantedv(\n"
        with unittest.mock.patch.object(device_code.subprocess, "run", side_effect=lambda _, **options: unittest.mock.Mock(
            stdout=options["input"])):  # fmt: skip
            self.assertEqual(device_code.kernels(ptx), "_Z6wantedv")

    def test_kernels_of_quantised_weights_are_kept_of_a_llama_in_bfloat16(self):
        def marlin(x, weight):
            return f"void marlin::Marlin<{x}l, {weight}l, 1125899906909960l, 1125899906909960l, 128, 1, 4, 8, false>(int4 const*)"

        for weight in engine_pack.MARLIN_WEIGHTS.values():
            self.assertTrue(engine_pack.is_core_kernel(marlin(engine_pack.MARLIN_BFLOAT16, weight)))
            self.assertFalse(engine_pack.is_core_kernel(marlin(1125899906910725, weight)))  # float16
        self.assertFalse(engine_pack.is_core_kernel(marlin(engine_pack.MARLIN_BFLOAT16, 1125899923621888)))  # 8-bit integers
        self.assertTrue(engine_pack.is_core_kernel("void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*)"))
        machete = "machete::MacheteCollectiveMma<cute::tuple<cutlass::vllm_biased_integer_subbyte<4, 8, false>, cutlass::{}>,"
        self.assertTrue(engine_pack.is_core_kernel(machete.format("bfloat16_t")))
        self.assertFalse(engine_pack.is_core_kernel(machete.format("half_t")))
        self.assertTrue(engine_pack.is_core_kernel("void vllm::moe::topkGating<8, 256, 4, 16>(float const*)"))
        self.assertFalse(engine_pack.is_core_kernel("void marlin_moe_wna16::Marlin<1l>(int4 const*)"))
        self.assertTrue(engine_pack.is_core_kernel("void vllm::scaled_fp8_quant_kernel_strided_dynamic<float>(int)"))

    def test_the_forward_pass_of_a_llama_is_told_by_its_template_arguments(self):
        def names(head, dtype, soft_capped):
            tile = f"cute::tuple<cute::C<128>, cute::C<176>, cute::C<{head}> >"
            flags = f"cutlass::arch::Sm90, true, false, {soft_capped}, true"
            return f"CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1> >, {tile}, {head}, {dtype}, float, {flags}>"

        is_wanted = engine_pack.is_forward_of((128, engine_pack.BFLOAT16))
        self.assertTrue(is_wanted(names(128, engine_pack.BFLOAT16, "false")))
        self.assertFalse(is_wanted(names(64, engine_pack.BFLOAT16, "false")))
        also_64 = engine_pack.is_forward_of((128, engine_pack.BFLOAT16), (64, engine_pack.BFLOAT16))
        self.assertTrue(also_64(names(64, engine_pack.BFLOAT16, "false")))
        self.assertFalse(also_64(names(64, engine_pack.FLOAT16, "false")))
        self.assertFalse(also_64(names(64, engine_pack.BFLOAT16, "false").replace(">, 64, cut", ">, 256, cut")))
        self.assertFalse(is_wanted(names(128, engine_pack.FLOAT16, "false")))
        self.assertFalse(is_wanted(names(128, engine_pack.BFLOAT16, "true")))
        self.assertFalse(is_wanted("flash::CollectiveMainloopFwdSm80<1>"))
        self.assertTrue(is_wanted("void flash::prepare_varlen_num_blocks_kernel<1, true>(int)"))


if __name__ == "__main__":
    unittest.main()
