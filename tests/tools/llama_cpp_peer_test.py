"""What bench/peers/llama_cpp.py makes of its rounds, and where it continues (nothing is built or measured here)."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import llama_cpp
import llama_cpp_quantised


def round_of(llama: float, paged: float, relay: float, prefill: tuple[float, float]) -> dict:
    ours = {"paged": paged, "relay": relay, "prefill": prefill[1], "version": "baton 9", "device": "a machine", "dtype": "bf16"}
    return {"llama": {"decode": llama, "prefill": prefill[0]}, "baton": ours, "others": 0.0}


def state_of(*cells: dict) -> dict:
    return {"cells": list(cells), "command": "the command", "runs": 3, "threads": 2, "peer": "a peer", "machine": "two cores"}


def cell(shared: int, requests: int, *rounds: dict) -> dict:
    return {"shape": "110m", "shared": shared, "requests": requests, "way": "f16", "trials": {"f16": 1.0}, "rounds": list(rounds)}


class Table(unittest.TestCase):
    def test_has_medians_half_spreads_and_ratios(self):
        rounds = [round_of(llama, 200, 300, (500, 750)) for llama in (90, 100, 120)]
        text = llama_cpp.table(state_of(cell(512, 32, *rounds)))
        self.assertIn("| 110m | 512 | 32 | 100 ± 15% | f16 | 200 ± 0% | 300 ± 0% | 2.00 | 3.00 | 1.50 |", text)
        self.assertIn("| 110m | 512 | 500 ± 0% | 750 ± 0% | 1.50 |", text)

    def test_takes_prefill_of_one_length_only_and_leaves_out_cells_without_rounds(self):
        text = llama_cpp.table(state_of(cell(2048, 1, round_of(50, 60, 60, (500, 750))), cell(2048, 8)))
        self.assertNotIn("Prefill", text)
        self.assertIn("| 110m | 2048 | 1 | 50.0", text)
        self.assertNotIn("| 110m | 2048 | 8 |", text)


class Resuming(unittest.TestCase):
    def test_continues_with_the_cell_of_the_file(self):
        begun = cell(2048, 32, round_of(1, 1, 1, (1, 1)))
        state = state_of(begun)
        self.assertIs(llama_cpp.cell_of(state, "110m", 2048, 32, again=False), begun)
        self.assertEqual(llama_cpp.cell_of(state, "110m", 2048, 8, again=False)["rounds"], [])
        self.assertEqual(len(state["cells"]), 2)

    def test_begins_again_when_asked_to(self):
        state = state_of(cell(2048, 32, round_of(1, 1, 1, (1, 1))))
        self.assertEqual(llama_cpp.cell_of(state, "110m", 2048, 32, again=True)["rounds"], [])
        self.assertEqual(len(state["cells"]), 1)


def arm_of(arm: str, decode: dict, prefill: float, **more) -> dict:
    return {"shape": "110m", "arm": arm, "decode": decode, "prefill": prefill, "others": 0.04, **more}


class QuantisedTable(unittest.TestCase):
    def state(self, *rounds: dict) -> dict:
        about = {"command": "the command", "threads": 2, "shared": 2048, "new": 16, "machine": "two cores", "peer": "a peer"}
        return {**about, "rounds": list(rounds)}

    def test_has_the_medians_of_all_rounds_and_what_baton_took(self):
        ours = {"version": "baton 9", "dtype": "float32 weights, float32 KV"}
        text = llama_cpp_quantised.table(self.state(
            arm_of("Baton int4", {"1": [80, 100], "8": [200, 200]}, 400, **ours),
            arm_of("llama.cpp Q4_0", {"1": [50, 50], "8": [90, 110]}, 300),
            arm_of("Baton int4", {"1": [100, 120], "8": [200, 200]}, 500, **ours),
        ))  # fmt: skip
        self.assertIn("baton 9, without --quantization: float32 weights, float32 KV.", text)
        rows = [line for line in text.splitlines() if line.startswith(("| llama", "| Baton"))]
        self.assertEqual(rows, ["| llama.cpp Q4_0 | 50.0 ± 0% | 100 ± 10% | 300 ± 0% | 1 | 4% |",
                                "| Baton int4 | 100 ± 20% | 200 ± 0% | 450 ± 11% | 2 | 4% |"])  # fmt: skip

    def test_arms_are_files_of_llama_cpp_or_flags_of_baton(self):
        forms = [form for form in llama_cpp_quantised.ARMS.values() if isinstance(form, str)]
        self.assertEqual(sorted(forms), sorted(llama_cpp_quantised.FILES))
        for name, form in llama_cpp_quantised.ARMS.items():
            self.assertEqual(name.startswith("llama.cpp"), isinstance(form, str))
            self.assertEqual("head too" in name, "--quantize-lm-head" in form)
            self.assertEqual("x in 8 bits" in name, "--activation-dtype" in form)


if __name__ == "__main__":
    unittest.main()
