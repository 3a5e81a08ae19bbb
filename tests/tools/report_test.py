"""Tests of bench/report: which rows are shown, the theory's numbers, and that docs/report says what bench/results say."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "report"))
sys.path.insert(0, str(ROOT / "bench" / "experiments"))

import fill  # noqa: E402
import findings  # noqa: E402
import markdown_parts  # noqa: E402
import quantities  # noqa: E402
import readme  # noqa: E402
import result_rows  # noqa: E402
import selection  # noqa: E402
import tables  # noqa: E402
import tables_families  # noqa: E402
import tables_paper  # noqa: E402
import tables_servers  # noqa: E402


def row(arm, device="NVIDIA H200", commit="c1", date="2026-11-22T10:00:00Z", point=None, **numbers):
    point = {"model": "llama-2-7b", "shared": 2048, "requests": 100} if point is None else point
    return {
        "experiment": 3,
        "job": "job",
        "point": point,
        "arm": arm,
        "numbers": numbers,
        "command": "baton bench",
        "commit": commit,
        "machine": {"device": device},
        "date": date,
        "seconds": 1,
    }


def offline_row(arm, seconds, **more):
    return row(arm, elapsed_times=seconds, num_requests=100, total_output_tokens=1000, **more)


class Selection(unittest.TestCase):
    def test_an_h200_is_shown_where_a_cpu_has_more_rows(self):
        rows = [row("relay", device="a CPU") for _ in range(3)] + [row("relay", us=5)]
        results = selection.Results(rows)
        self.assertEqual(results.device, "NVIDIA H200")
        self.assertEqual([one["us"] for one in results.measured], [5])

    def test_a_point_is_shown_by_its_last_day_with_all_repetitions(self):
        rows = [
            offline_row("relay", [10], commit="old", date="2026-11-21T10:00:00Z"),
            offline_row("paged", [50], commit="old", date="2026-11-21T10:00:00Z"),
            offline_row("relay", [4, 5], commit="new"),
            offline_row("relay", [8], commit="newer"),
        ]
        results = selection.Results(rows)
        self.assertEqual([one.arm for one in results.measured], ["relay"])
        self.assertEqual(results.one("relay").rates("num_requests"), [25, 20, 12.5])
        self.assertEqual(results.one("relay").rate("num_requests"), 20)

    def test_other_programs_stand_beside_baton_whatever_their_version(self):
        rows = [row("relay", us=5), row("vllm", us=7, commit="vllm 0.24.0", date="2026-11-22T12:00:00Z")]
        self.assertEqual({one.arm for one in selection.Results(rows).measured}, {"relay", "vllm"})

    def test_a_point_that_did_not_run_is_a_failure_and_no_measurement(self):
        failed = row("unshared", bytes_needed=200, bytes_available=100) | {"error": "does not fit"}
        results = selection.Results([offline_row("relay", [1]), failed])
        self.assertEqual([one.arm for one in results.measured], ["relay"])
        self.assertIn("needs 200 bytes, 100 available", markdown_parts.failures(results))
        self.assertEqual(selection.Results([failed, offline_row("unshared", [1])]).failures, [])

    def test_an_error_hides_no_measurement_and_ends_with_a_later_run(self):
        def at(hour, day=29):
            return f"2026-11-{day}T{hour}:00:00Z"

        good = offline_row("relay", [1], date=at(10, 22))
        whole = row("-", point={}, date=at(10), commit="c2") | {"error": "progress / exit status -11"}
        again = row("-", point={}, date=at(11), commit="c2") | {"error": "baton serve ended: "}
        results = selection.Results([good, whole, again])
        self.assertEqual([one.arm for one in results.measured], ["relay"])
        self.assertEqual(markdown_parts.failures(results), "- did not run on 2026-11-29: job: baton serve ended")
        self.assertTrue(markdown_parts.failures(selection.Results([whole])).endswith("job: exit status -11"))
        later = offline_row("relay", [2], date=at(12), commit="c3")
        self.assertEqual(selection.Results([good, whole, again, later]).failures, [])
        of_arm = row("unshared", date=at(10)) | {"error": "does not fit"}
        results = selection.Results([good, of_arm])
        self.assertEqual([one.arm for one in results.measured], ["relay"])
        self.assertEqual(results.failures, [of_arm])

    def test_a_cut_run_counts_by_the_rate_of_the_tool(self):
        cut = offline_row("unshared", [100], cut=True, requests_per_second=0.5)
        self.assertEqual(selection.Results([cut]).one("unshared").rates("num_requests"), [0.5])

    def test_a_cut_run_does_not_count_beside_a_whole_one(self):
        cut = offline_row("unshared", [100], cut=True, requests_per_second=0.5)
        self.assertEqual(selection.Results([cut, offline_row("unshared", [200])]).one("unshared").rates("num_requests"), [0.5])
        self.assertIsNone(selection.Results([cut, offline_row("unshared", [200])]).one("unshared").raw("cut"))

    def test_spread_is_the_range_by_the_median(self):
        self.assertEqual(selection.spread([9, 10, 12]), 0.3)
        self.assertIsNone(selection.spread([9]))


class OlderKernels(unittest.TestCase):
    def rows(self, *days, device="NVIDIA H200"):
        rows = [offline_row("relay", [1], date=f"{day}T10:00:00Z", point={"shared": n}) for n, day in enumerate(days)]
        return selection.Results([row | {"machine": {"device": device}} for row in rows])

    def test_a_table_says_which_of_its_rows_are_from_before_the_kernels_changed(self):
        mixed = self.rows("2026-11-22", selection.KERNELS_DAY, "2026-11-23")
        self.assertIn("Baton's rows of 2026-11-22 and 2026-11-23 are of kernels that have changed since", mixed.older())
        self.assertIn(mixed.older() + " For example:", markdown_parts.about(mixed))
        self.assertTrue(self.rows("2026-11-22").older().startswith("All rows of Baton are of kernels"))

    def test_it_says_nothing_of_newer_rows_processors_and_other_programs(self):
        self.assertEqual(self.rows(selection.KERNELS_DAY, "2026-12-01").older(), "")
        self.assertEqual(self.rows("2026-11-22", device="a CPU").older(), "")
        other = row("vllm", us=7, commit="vllm 0.24.0", date="2026-11-22T12:00:00Z")
        self.assertEqual(selection.Results([other]).older(), "")


class Builds(unittest.TestCase):
    OLD, NEW = {"program": "1" * 12, "cuda": "2" * 12}, {"program": "3" * 12, "cuda": "4" * 12}

    def of(self, build, arm="relay", seconds=1, job="job", hour=10, **point):
        about = {"model": "llama-2-7b", "shared": 2048, "requests": 100} | point
        date = f"2026-11-29T{hour}:00:00Z"
        return offline_row(arm, [seconds], point=about, date=date, commit=f"of {hour}"[:2]) | {"job": job, "build": build}

    def rates(self, rows):
        return sorted((one.arm, one.rate("num_requests")) for one in selection.Results(rows).measured)

    def test_rows_of_the_last_build_are_shown_and_those_of_one_day_before_it_are_not(self):
        rows = [self.of(self.OLD, seconds=4), self.of(self.OLD, "unshared", seconds=9), self.of(self.NEW, seconds=2, hour=11)]
        self.assertEqual(self.rates(rows), [("relay", 50)])
        self.assertEqual(self.rates([*rows, self.of(self.NEW, seconds=1, hour=12)]), [("relay", 75)])  # two runs of one build

    def test_a_job_measured_again_with_another_number_of_requests_replaces_its_rows(self):
        older = offline_row("relay", [4]) | {"point": {"model": "llama-2-7b", "shared": 2048, "requests": 1000}}
        self.assertEqual(self.rates([older, self.of(self.NEW, job="another name")]), [("relay", 100)])
        self.assertEqual(self.rates([older | {"job": "job", "point": {"shared": 1}}, self.of(self.NEW)]), [("relay", 100)])
        self.assertEqual(self.rates([older, self.of(self.NEW, job="other", shared=64)]), [("relay", 25), ("relay", 100)])

    def test_a_failure_replaces_nothing(self):
        failed = self.of(self.NEW) | {"error": "signal 11", "numbers": {}}
        older = offline_row("relay", [4], point={"model": "llama-2-7b", "shared": 64})
        self.assertEqual(self.rates([older, failed]), [("relay", 25)])

    def test_cases_of_attention_differ_in_the_number_of_requests(self):
        cases = [row("relay", point={"table": "free", "requests": n, "shared": 64}, median_us=n) for n in (4, 8)]
        cases[1] |= {"build": self.NEW, "date": "2026-11-29T10:00:00Z", "job": "batch-8"}
        self.assertEqual(len(selection.Results(cases).measured), 2)

    def test_what_is_shown_is_said_with_its_build(self):
        results = selection.Results([self.of(self.NEW, hour=11), self.of(self.OLD, shared=64, job="other")])
        self.assertIn("(build 1111111/2222222)", results.about())
        self.assertIn("(build 3333333/4444444)", results.about())
        self.assertIn("are of builds before 3333333/4444444 (2026-11-29).", results.older())
        self.assertTrue(selection.Results([self.of(self.NEW)]).older() == "")

    def test_rows_of_earlier_builds_have_a_mark_that_the_notes_explain(self):
        results = selection.Results([self.of(self.NEW, hour=11), self.of(self.OLD, shared=64, job="other")])
        published = selection.Published(ROOT / "bench" / "results")
        table = tables.offline(results, published)
        self.assertIn("| 64 † |", table)
        self.assertIn("| 2048 |", table)
        self.assertIn("(†) are of builds before 3333333/4444444", table)
        self.assertNotIn("†", tables.offline(selection.Results([self.of(self.NEW)]), published))

    def test_the_cards_of_a_table_are_named_where_there_are_several(self):
        rows = [self.of(self.NEW), self.of(self.NEW, shared=64, job="other")]
        for one, card in zip(rows, ("11112222", "33334444"), strict=True):
            one["machine"] = {"device": "NVIDIA H200", "gpus": [card]}
        self.assertIn("NVIDIA H200, cards 11112222, 33334444; 2026-11-29", selection.Results(rows).about())
        self.assertNotIn("cards", selection.Results(rows[:1]).about())

    def test_the_newest_build_is_that_of_all_experiments(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            result_rows.append(folder / "experiment_03_offline.json", self.of(self.OLD))
            result_rows.append(folder / "experiment_07_models.json", self.of(self.NEW, hour=11))
            self.assertIn("are of builds before 3333333/4444444", selection.load(folder, 3, "offline").older())
            self.assertEqual(selection.load(folder, 7, "models").older(), "")
            told = tables.block("builds", folder, None)
            self.assertIn("The newest build is 3333333/4444444", told)
            self.assertIn("| 3, offline | H200 | 0 | 1 | 2026-11-29 (of) |", told)
            self.assertIn("| 7, models | H200 | 1 | 0 | - |", told)

    def test_every_kind_of_gpu_has_its_turn(self):
        rows = [row("relay", us=1), row("relay", device="NVIDIA H100", us=2), row("relay", device="a CPU", us=3)]
        self.assertEqual([one.device for one in selection.Results(rows).each_gpu()], ["NVIDIA H200", "NVIDIA H100"])


class Papers(unittest.TestCase):
    def test_table_3_and_table_4_stand_beside_ours(self):
        published = selection.Published(ROOT / "bench" / "results")
        mmlu = [row(arm, point={"shots": 5}, elapsed_times=[seconds], num_requests=100)
                for arm, seconds in (("relay", 2), ("paged", 3), ("unshared", 8))]  # fmt: skip
        told = tables_paper.mmlu(selection.Results(mmlu), published)
        self.assertIn("| 5 | A100-80G | 1,308 | 432 | 316 | 1.37 | 1.50 | 4.14 | 4.00 |", told)
        self.assertIn("| 1 | A40 | 1,012 | 675 | 621 | 1.09 | - | 1.63 | - |", told)
        jobs = [offline_row(arm, [seconds], point={"model": "phi-2", "shared": 1024, "requests": 100})
                for arm, seconds in (("relay", 2), ("paged", 3))]  # fmt: skip
        told = tables_paper.models(selection.Results(jobs), published)
        self.assertIn("| Phi-2 | 1024 | A40 | 3.54 | 4.82 | 8.76 | - | 33.33 | 50.00 | 1.82 | 1.50 | 2.47 | - |", told)


class Servers(unittest.TestCase):
    def test_a_line_has_the_median_of_the_rounds_of_a_server(self):
        def load(arm, number, latency, **more):
            point = {"model": "llama-3-8b", "shared": 2048, "rate": 16.0, "round": number, "requests": 160}
            numbers = dict.fromkeys(tables_servers.NUMBERS, 8.0) | {"latency_per_token_s": latency}
            return row(arm, point=point, **numbers, **more)

        rows = [load("relay", 1, 0.004), load("relay", 2, 0.006), load("vllm", 1, 0.01, commit="vllm 0.26.0")]
        told = tables_servers.servers(selection.Results(rows), None)
        self.assertIn("| 16 | Baton, relay | 160 | 2 | 8.00 | 5.0 | 8.0 |", told)
        self.assertIn("| 16 | vllm 0.26.0 | 160 | 1 | 8.00 | 10.0 | 8.0 |", told)


class StepGoals(unittest.TestCase):
    def test_a_step_is_judged_by_its_time_and_its_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            point = {"name": "n", "model": "llama-3-8b", "dataset": "decode", "requests": 32, "shared": 2048, "own": 160, "new": 64}
            path = Path(folder) / "experiment_11_peers.json"
            result_rows.append(path, row("relay", point=point, step_ms=4.0))
            result_rows.append(path, offline_row("relay", [20]) | {"point": {"name": "gsp-64x16"}})
            told = tables.block("step-goals", Path(folder), None)
            self.assertIn("| Llama-3-8B, a step of 32 x 2048, ms | 4.00 | 4.00 | yes | 88% | 88% |", told)
            self.assertIn("| job gsp-64x16, s | 16.00 | 20.00 | no | - | - |", told)
            self.assertIn("| job gsp-4x64, s | 3.40 | - | - | - | - |", told)


class Families(unittest.TestCase):
    def test_steps_stand_beside_the_other_engine_where_it_ran(self):
        point = {"model": "gemma-2-9b", "requests": 8, "quantization": "none", "new": 64}
        rows = [row(arm, point=point, step_ms=ms, tokens_per_s=[99, 101]) for arm, ms in (("relay", 4), ("paged", 5))]
        rows.append(row("vllm", point=point, step_ms=6, tokens_per_s=[100], commit="vllm 0.26.0"))
        told = tables_families.steps(selection.Results(rows), None)
        self.assertIn("| gemma-2-9b | bf16 | 8 | 4.00 | 5.00 | 6.00 | vllm 0.26.0 | 1.25 | 1.50 | 2% |", told)
        alone = tables_families.steps(selection.Results(rows[:2]), None)
        self.assertIn("| 4.00 | 5.00 | - | - | 1.25 | - | 2% |", alone)


class Pages(unittest.TestCase):
    def test_pages_of_kernels_say_when_these_changed_last(self):
        folder = ROOT / "bench" / "results"
        names = {"host-tier.md", "invariance.md", "streaming-gemm.md", "structured-output.md", "tensor-parallel.md"}
        pages = [path for path in folder.glob("*.md") if path.name.startswith(("h100", "h200")) or path.name in names]
        self.assertGreater(len(pages), 10)
        wanted = f"Kernels for one GPU changed last on {selection.KERNELS_DAY} ({selection.KERNELS}): rows of earlier days"
        for path in pages:
            self.assertIn(wanted, path.read_text(encoding="utf-8"), path.name)
        for path in folder.glob("cpu-*.md"):
            self.assertIn("Kernels for a processor changed last on ", path.read_text(encoding="utf-8"), path.name)


class Readme(unittest.TestCase):
    def step(self, arm, milliseconds, date="2026-11-26T10:00:00Z", name="decode-8b", commit="c1"):
        point = {"name": name, "model": "llama-3-8b", "dataset": "decode", "requests": 8, "shared": 2048}
        return row(arm, step_ms=milliseconds, point=point, date=date, commit=commit)

    def job(self, arm, seconds, date="2026-11-26T10:00:00Z", commit="c1"):
        point = {"name": "strangers-256", "model": "llama-3-8b", "requests": 256, "shared": 0}
        return offline_row(arm, seconds, elapsed_time=seconds[0], point=point, date=date, commit=commit)

    def test_vllms_default_and_its_cascade_stand_apart(self):
        both = [self.step("vllm", 12, commit="vllm 0.24.0"), self.step("vllm-cascade", 9, commit="vllm 0.24.0")]
        for others, cells in [(both, "12.00 | 9.00 | 2.00 | 1.50"), (both[:1], "12.00 | not measured | 2.00 | -"),
                              (both[1:], "not measured | 9.00 | - | 1.50")]:  # fmt: skip
            table = readme.steps(selection.Results([self.step("relay", 6), self.step("paged", 8), *others]), None)
            self.assertIn(f"| Llama-3-8B, 8 x 2048 | 6.00 | 8.00 | {cells} |", table)

    def test_a_point_that_one_of_the_programs_did_not_run_is_left_out(self):
        self.assertEqual(readme.steps(selection.Results([self.step("relay", 6), self.step("paged", 8)]), None), "")
        self.assertEqual(readme.steps(selection.Results([self.step("vllm", 6, commit="vllm 0.24.0")]), None), "")

    def test_machine_and_days_are_one_line_and_older_kernels_are_marked(self):
        vllm = self.job("vllm", [9], date="2026-11-22T10:00:00Z", commit="vllm 0.24.0")
        day = selection.KERNELS_DAY
        new = readme.jobs(selection.Results([self.job("relay", [6], date=f"{day}T10:00:00Z"), vllm]), None)
        self.assertIn(f"| {day} |", new)
        line = f"NVIDIA H200 for each program; Baton on {day}, vLLM 0.24.0 on 2026-11-22. In brackets: the spread of repeated runs."
        self.assertTrue(new.endswith(line), new)
        old = readme.jobs(selection.Results([self.job("relay", [6], date="2026-11-23T10:00:00Z"), vllm]), None)
        self.assertIn("| 2026-11-23 \\* |", old)
        self.assertIn("Baton on 2026-11-23 \\*, vLLM 0.24.0 on 2026-11-22. In brackets", old)
        self.assertIn("\n\\* Before Baton's kernels changed last", old)

    def test_each_arm_has_the_spread_of_its_runs(self):
        rows = [self.step(arm, 6, commit=commit) for arm, commit in (("relay", "c1"), ("vllm", "vllm 0.24.0"))]
        rows[0]["numbers"]["tokens_per_s"], rows[1]["numbers"]["tokens_per_s"] = [99, 100, 101], [90, 100, 120]
        self.assertIn("| 6.00 (2%) | not measured | 6.00 (30%) |", readme.steps(selection.Results(rows), None))

    def test_rows_before_the_newest_build_are_marked_with_its_name(self):
        vllm = self.job("vllm", [9], commit="vllm 0.24.0")
        newest = {"NVIDIA H200": ("abc/def", "c2", "2026-11-29")}
        told = readme.jobs(selection.Results([self.job("relay", [6]), vllm], newest), None)
        self.assertIn("| 2026-11-26 \\* |", told)
        self.assertTrue(told.endswith("\n\\* Before the build abc/def of 2026-11-29."), told)


class Theory(unittest.TestCase):
    def test_eq_10_is_the_papers(self):
        self.assertAlmostEqual(quantities.eq_10(64, 128, 32), 1.42, places=2)
        self.assertAlmostEqual(quantities.eq_10(8192, 128, 32), 21.28, places=2)

    def test_bytes_of_multi_head_attention(self):
        point = {"heads": 52, "kv_heads": 52, "head_dim": 128, "shared": 8192, "own": 128, "requests": 32}
        relay, unshared = (quantities.bytes_read(arm, point)[0] for arm in ("relay", "unshared"))
        self.assertAlmostEqual(unshared / relay, (8192 + 128 + 2) / (8192 / 32 + 128 + 2))
        self.assertEqual(quantities.bytes_read("paged", point), (relay, 31 * 8192 * 2 * 52 * 128 * 2))

    def test_a_prefix_in_the_l2_is_read_again_faster_than_from_memory(self):
        point = {"heads": 32, "kv_heads": 8, "head_dim": 128, "shared": 2048, "own": 128, "requests": 32}
        distinct, again = quantities.bytes_read("paged", point)
        self.assertAlmostEqual(quantities.model_us("paged", point, 4.5e6), distinct / 4.5e6 + again / 9.6e6)
        point["shared"] = 16384
        distinct, again = quantities.bytes_read("paged", point)
        self.assertAlmostEqual(quantities.model_us("paged", point, 4.5e6), (distinct + again) / 4.5e6)

    def test_a_ratio_of_sustained_rates_needs_one_that_was_exceeded(self):
        self.assertEqual(tables.sustained_ratio((40, True), (20, True)), (2, ""))
        self.assertEqual(tables.sustained_ratio((40, False), (20, True))[0], 2)
        self.assertIn("at least", tables.sustained_ratio((40, False), (20, True))[1])
        self.assertEqual(tables.sustained_ratio((40, True), (20, False))[0], None)
        self.assertEqual(tables.sustained_ratio((None, True), (20, True))[0], None)

    def test_the_sustained_rate_lies_between_the_rates_around_the_limit(self):
        def measured(*pairs):
            rows = [row("relay", point={"rate": rate}, latency_per_token_s=latency) for rate, latency in pairs]
            return selection.Results(rows).measured

        rate, exceeded = quantities.sustained_rate(measured((4, 0.01), (8, 0.1), (12, 1.0)), 0.1**0.5)
        self.assertAlmostEqual(rate, 10)
        self.assertTrue(exceeded)
        self.assertEqual(quantities.sustained_rate(measured((4, 0.01), (8, 0.02)), 0.5), (8, False))
        self.assertEqual(quantities.sustained_rate(measured((4, 0.9)), 0.5), (None, True))


class Report(unittest.TestCase):
    def test_the_report_says_what_the_results_say(self):
        for document in fill.DOCUMENTS:
            text = document.read_text(encoding="utf-8")
            written = fill.filled(text, ROOT / "bench" / "results", document.parent / "figures")
            self.assertEqual(written, text, "run bench/report/fill.py")

    def test_each_table_is_in_a_document(self):
        text = "".join(document.read_text(encoding="utf-8") for document in fill.DOCUMENTS)
        named = [match[1] for match in fill.PART.findall(text) if not match[1].startswith("figure-")]
        found = [name.removeprefix("finding-") for name in named if name.startswith("finding-")]
        self.assertEqual(sorted(found), sorted(findings.FINDINGS))
        named = [name for name in named if not name.startswith("finding-")]
        self.assertEqual(sorted(named), sorted([*tables.BLOCKS, *tables.WHOLE]))

    def test_each_figure_of_the_report_exists_and_is_shown(self):
        folder = ROOT / "docs" / "report"
        text = (folder / "README.md").read_text(encoding="utf-8")
        for path in (folder / "figures").glob("*.svg"):
            self.assertIn(f"](figures/{path.name})", text)

    def test_every_page_of_results_is_in_their_list_with_its_title(self):
        folder = ROOT / "bench" / "results"
        listed = [line for line in (folder / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("- [")]
        pages = [path for path in folder.glob("*.md") if path.name != "README.md"]
        titles = [path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for path in pages]
        wanted = [f"- [{path.name}]({path.name}): {title}" for path, title in zip(pages, titles, strict=True)]
        self.assertEqual(sorted(listed), sorted(wanted))

    def test_readme_begins_with_how_much_longer_the_other_engine_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            for arm, step_ms in (("relay", 4), ("vllm", 6)):
                point = {"name": "decode-8b-128-2048", "model": "llama-3-8b"}
                commit = "vllm 0.24.0" if arm == "vllm" else "c1"
                written = row(arm, commit=commit, point=point, step_ms=step_ms)
                result_rows.append(Path(folder) / "experiment_11_peers.json", written)
            told = findings.finding("headline", Path(folder))
        self.assertIn("a decode step of vLLM takes 1.50 times as long as Baton's for Llama-3-8B.", told)
        self.assertEqual(findings.finding("headline", Path(folder)), "")

    def test_a_changed_number_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            text = "<!-- generated: cost -->\n?\n<!-- end -->\n"
            path = Path(folder) / "experiment_03_offline.json"
            result_rows.append(path, offline_row("relay", [1]))
            written = fill.filled(text, Path(folder), Path(folder))
            self.assertEqual(fill.filled(written, Path(folder), Path(folder)), written)
            changed = written.replace("0.833", "0.800")
            self.assertNotEqual(fill.filled(changed, Path(folder), Path(folder)), changed)
            self.assertIn("| 2048 | 0.833 | - | - |", written)

    def test_findings_say_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment_11_peers.json"
            for arm, name, seconds in (("relay", "a", 2), ("vllm", "a", 3), ("relay", "b", 2), ("vllm", "b", 1)):
                result_rows.append(path, row(arm, point={"name": name}, elapsed_times=[seconds]))
            told = findings.finding("peers", Path(folder))
            self.assertEqual(told, "Relay is ahead of every other engine in 1 of 2 points. Slower: b (vllm: 0.50 of Baton's time).")
            self.assertEqual(findings.finding("offline", Path(folder)), "")

    def test_several_gpus_stand_beside_one_and_beside_the_other_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment_12_several_gpus.json"
            about = {"model": "llama-30b", "new": 64, "requests": 32, "shared": 2048}
            for arm, ranks, ms in (("relay", 1, 10), ("relay", 2, 6), ("paged", 2, 8), ("vllm-tp2", 2, 9)):
                result_rows.append(path, row(arm, point=about | {"ranks": ranks}, step_ms=ms, tokens_per_s=[99, 100, 101]))
            for arm, seconds in (("relay", [2]), ("paged", [3])):
                point = {"model": "llama-30b", "dataset": "sharegpt", "shared": 512, "requests": 100, "ranks": 2}
                result_rows.append(path, offline_row(arm, seconds) | {"point": point})
            published = selection.Published(ROOT / "bench" / "results")
            self.assertIn("| llama-30b | 32 | 2 | 10.00 | 6.00 | 0.60 | 8.00 | 9.00 | 1.50 | 2% |",
                          tables.block("several-steps", Path(folder), published))
            self.assertIn("| llama-30b | 100 | 2 | 512 | 50.00 | 33.33 | - | 1.50 | - | 1.21 (2 x A100, over vLLM-PS); 1.70",
                          tables.block("several-jobs", Path(folder), published))
            told = findings.finding("several", Path(folder))
            self.assertIn("2 GPUs take 0.60 of one GPU's step of llama-30b at 32 requests. vLLM's step", told)
            self.assertIn("takes 1.50 times as long as relay's at 32 requests.", told)
            self.assertIn("whole jobs of llama-30b on 2 GPUs: 1.50 at 512 tokens.", told)

    def test_quantised_weights_stand_beside_16_bits_and_beside_the_other_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment_13_quantised.json"
            about = {"model": "llama-3-8b", "new": 64, "requests": 8, "shared": 2048}
            measured = {"none": {"relay": 5, "paged": 6, "vllm": 7}, "int4": {"relay": 2, "paged": 3, "vllm": 5, "vllm-marlin": 4}}
            for quantization, arms in measured.items():
                for arm, ms in arms.items():
                    point = about | {"quantization": quantization}
                    result_rows.append(path, row(arm, point=point, step_ms=ms, tokens_per_s=[99, 100, 101]))
            for quantization, seconds in (("none", 4), ("fp8", 2)):
                point = {"model": "llama-2-7b", "dataset": "sharegpt", "shared": 512, "requests": 100, "quantization": quantization}
                for arm, factor in (("relay", 1), ("paged", 3)):
                    result_rows.append(path, offline_row(arm, [factor * seconds]) | {"point": point})
            steps = tables.block("quantised-steps", Path(folder), None)
            self.assertIn("| 8 | bf16 | 5.00 | 1.00 | 6.00 | 1.20 | 7.00 | - | 1.40 | 2% |", steps)
            self.assertIn("| 8 | int4 | 2.00 | 0.40 | 3.00 | 1.50 | 5.00 | 4.00 | 2.00 | 2% |", steps)
            self.assertIn("| 512 | fp8 | 50.00 | 2.00 | 16.67 | 3.00 |", tables.block("quantised-jobs", Path(folder), None))
            told = findings.finding("quantised", Path(folder))
            self.assertIn("With weights in bf16 at 8 requests, paged takes 1.20 times as long as relay; vLLM's", told)
            self.assertIn("With weights in int4 at 8 requests, a step takes 0.40 of bf16's; paged takes 1.50 times", told)
            self.assertIn("vLLM's fastest arm 2.00 times.", told)

    def test_a_loss_is_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment_03_offline.json"
            for arm, seconds in (("relay", [2, 2]), ("paged", [1, 1])):
                result_rows.append(path, offline_row(arm, seconds))
            self.assertIn("| 3 | model llama-2-7b, shared 2048, requests 100 | 0.500 | 0% |", tables.losses(Path(folder)))

    def test_arms_that_ran_once_lose_by_more_than_two_percent(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment_03_offline.json"
            for shared, seconds in ((64, 1.015), (128, 1.03)):
                for arm, time in (("relay", [seconds]), ("paged", [1])):
                    result_rows.append(path, offline_row(arm, time, point={"model": "m", "shared": shared}))
            told = tables.losses(Path(folder))
            self.assertTrue(told.startswith("1 of 2 cells"), told)
            self.assertIn("| 3 | model m, shared 128 | 0.971 | - |", told)


if __name__ == "__main__":
    unittest.main()
