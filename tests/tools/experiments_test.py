"""Tests of bench/experiments: rows and their files, continuing where a run ended, failures, time limits, the plan."""

import contextlib
import dataclasses
import io
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "experiments"))

import harness  # noqa: E402
import machine  # noqa: E402
import offline_jobs  # noqa: E402
import result_rows  # noqa: E402
import run_all  # noqa: E402
import serving  # noqa: E402
import workloads  # noqa: E402

MACHINE = {"device": "a machine"}
BUILD = {"program": "0123456789ab", "cuda": "ba9876543210"}
PROGRAM_RUN = harness.Program("c0ffee", BUILD)
# Stands for the program: writes what the test put beside it where --output-json says, or fails, or sleeps.
PROGRAM = """
import json, sys, time
arguments = sys.argv[1:]
if "fail" in arguments:
    print("first line\\nthe last words")
    sys.exit(3)
if "sleep" in arguments:
    time.sleep(60)
with open(arguments[arguments.index("--output-json") + 1], "w") as file:
    json.dump({"arms": [{"arm": "relay", "elapsed_times": [1, 2]}]}, file)
"""


def job_of(name, *arguments, seconds=1):
    def run(runner):
        for entry in runner.report(list(arguments))["arms"]:
            runner.add({"shared": 64}, entry["arm"], {"elapsed_times": entry["elapsed_times"]}, entry.get("error"))

    return harness.Job(name, seconds, run)


class LoadRunner:
    """Stands for harness.Runner: keeps the words of `baton bench serve`, whose result it writes."""

    def __init__(self, scratch, scale):
        self.settings = harness.Settings(scale=scale)
        self.scratch = scratch
        self.begin = 0.0
        self.words = []

    def run(self, arguments):
        self.words = [str(word) for word in arguments]
        folder = Path(self.words[self.words.index("--result-dir") + 1])
        name = self.words[self.words.index("--result-filename") + 1]
        (folder / name).write_text(json.dumps({"completed": 4, "label": "relay"}), encoding="utf-8")


class ServingTest(unittest.TestCase):
    def test_answers_of_random_weights_come_with_their_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            for scale, wants_ids in (("full", True), ("quick", False)):
                runner = LoadRunner(Path(folder), scale)
                self.assertEqual(serving.load(runner, "http://127.0.0.1:1", ["--num-prompts", 4]), {"completed": 4})
                self.assertEqual(runner.words[:2], ["bench", "serve"])
                bodies = [json.loads(runner.words[i + 1]) for i, word in enumerate(runner.words) if word == "--extra-body"]
                self.assertEqual(bodies, [{"return_token_ids": True}] if wants_ids else [])


class ExperimentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        program = self.folder / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        self.settings = harness.Settings(binary=(sys.executable, str(program)), results=self.folder / "results")

    def work(self, jobs, deadline=None):
        experiment = harness.Experiment(42, "test", "a test", lambda settings: jobs)
        runner = harness.Runner(self.settings, MACHINE, PROGRAM_RUN, deadline=deadline)
        self.addCleanup(runner.close)
        counts = harness.work([runner], [(experiment, job) for job in jobs])
        return counts, result_rows.load(self.settings.results / "experiment_42_test.json")

    def test_a_job_writes_a_row_for_each_arm(self):
        counts, rows = self.work([job_of("one", "bench", "throughput")])
        self.assertEqual(counts, (1, 1, 0))
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0]["numbers"], {"elapsed_times": [1, 2]})
        self.assertEqual((rows[0]["experiment"], rows[0]["job"], rows[0]["arm"]), (42, "one", "relay"))
        self.assertEqual((rows[0]["commit"], rows[0]["build"], rows[0]["machine"]), ("c0ffee", BUILD, MACHINE))
        self.assertEqual(rows[0]["command"], "baton bench throughput")
        self.assertNotIn("error", rows[0])

    def test_a_failed_command_is_a_row_and_the_next_job_runs(self):
        counts, rows = self.work([job_of("bad", "fail"), job_of("good")])
        self.assertEqual(counts, (1, 2, 0))
        self.assertEqual([row["job"] for row in rows], ["bad", "good"])
        self.assertIn("the last words", rows[0]["error"])

    def test_a_job_without_its_data_is_left_out_and_no_failure(self):
        def run(runner):
            workloads.data_file("no/such.file", self.folder)

        counts, rows = self.work([harness.Job("no data", 1, run), job_of("good")])
        self.assertEqual(counts, (1, 1, 0))
        self.assertEqual([row["job"] for row in rows], ["good"])

    def test_a_command_ends_with_the_time_of_the_run_and_writes_nothing(self):
        begin = time.monotonic()
        counts, rows = self.work([job_of("slow", "sleep", seconds=0.1)], deadline=begin + 1)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual((counts, rows), ((0, 1, 0), []))

    def test_a_command_that_hangs_on_a_gpu_is_a_failure_and_the_next_job_runs(self):
        self.settings = dataclasses.replace(self.settings, device="cuda")
        counts, rows = self.work([job_of("hangs", "sleep", seconds=-14.8), job_of("good")])
        self.assertEqual(counts, (1, 2, 0))
        self.assertEqual([row["job"] for row in rows], ["hangs", "good"])
        self.assertIn("stopped after 1 s", rows[0]["error"])

    def test_a_job_that_does_not_fit_the_time_is_left(self):
        counts, rows = self.work([job_of("long", seconds=1000), job_of("short")], deadline=time.monotonic() + 60)
        self.assertEqual(counts, (1, 1, 1))
        self.assertEqual([row["job"] for row in rows], ["short"])

    def test_resume_skips_what_is_final_for_this_kind_of_machine_and_this_build(self):
        def row(job, machine="a machine", build=BUILD, commit="c0ffee", **more):
            about = {"machine": {"device": machine}, "commit": commit, "point": {}, "arm": "relay", "numbers": {}}
            return {"job": job, **about, **({"build": build} if build else {}), **more}

        rows = [
            row("done"),
            row("of another host") | {"machine": {"device": "a machine", "driver": "another"}},
            row("other machine", machine="b"),
            row("other build", build=BUILD | {"cuda": "0"}),
            row("without a build", build=None),
            row("crashed", error="signal 11"),
            row("too large") | {"error": "out of memory", "numbers": {"bytes_needed": 5}},
            row("half"),
            row("half", error="timeout"),
            row("a peer's", build=None, commit="vllm 0.24.0"),
        ]
        done = {"done", "of another host", "too large"}
        self.assertEqual(result_rows.finished_jobs(rows, MACHINE, BUILD), done)
        self.assertEqual(result_rows.finished_jobs(rows, MACHINE, None), {*done, "other build", "without a build"})

    def test_a_failure_that_a_later_run_made_good_does_not_count(self):
        def row(arm, hour, point=64, **more):
            about = {"machine": MACHINE, "commit": "c0ffee", "build": BUILD, "job": "job", "numbers": {}}
            return {**about, "arm": arm, "point": {"shared": point} if point else {}, "date": f"2026-11-29T{hour}:00:00Z", **more}

        whole = row("-", "10", None, error="signal 11")
        self.assertEqual(result_rows.finished_jobs([row("relay", "11"), whole], MACHINE, BUILD), {"job"})
        self.assertEqual(result_rows.finished_jobs([row("relay", "09"), whole], MACHINE, BUILD), set())
        arm = row("paged", "10", error="signal 11")
        self.assertEqual(result_rows.finished_jobs([arm, row("relay", "11")], MACHINE, BUILD), set())
        self.assertEqual(result_rows.finished_jobs([arm, row("paged", "11", 128)], MACHINE, BUILD), set())
        self.assertEqual(result_rows.finished_jobs([arm, row("paged", "11")], MACHINE, BUILD), {"job"})

    def test_a_build_is_known_by_the_program_and_by_the_module_of_the_gpu(self):
        program, library = self.folder / "bin" / "baton", self.folder / "lib" / "libbaton_kernels.so"
        module = library.with_name(machine.CUDA_MODULE)
        for path in (program, library):
            path.parent.mkdir()
            path.write_text("1", encoding="utf-8")
        program.chmod(0o755)
        alone = machine.build_of((str(program), "--flag"))
        self.assertEqual(set(alone), {"program"})
        module.write_text("1", encoding="utf-8")
        whole = machine.build_of((str(program),))
        self.assertEqual((set(whole), whole["program"]), ({"program", "cuda"}, alone["program"]))
        benches = program.with_name("baton-bench")
        for path, changed in ((module, "cuda"), (library, "program"), (program, "program"), (benches, "program")):
            before = machine.build_of((str(program),))
            path.write_text("2", encoding="utf-8")
            after = machine.build_of((str(program),))
            self.assertEqual([name for name in after if after[name] != before[name]], [changed], path)
        self.assertEqual(machine.build_of((str(self.folder / "none"),)), {})

    def test_rows_of_another_experiments_equal_job_stand_in_its_file(self):
        other = offline_jobs.AlsoOf((43, "other"), "its name", {"its": "point"}, ("relay",))
        job = offline_jobs.throughput_job(
            self.settings, "one", "llama-2-7b", lambda: ["--dataset-name", "random"], {"requests": 8}, 1, ("relay",), 1,
            also=(other,),
        )  # fmt: skip
        counts, rows = self.work([job])
        self.assertEqual(counts, (1, 1, 0))
        others = result_rows.load(self.settings.results / "experiment_43_other.json")
        written = [(row["job"], row["point"], row["numbers"]) for row in others]
        self.assertEqual(written, [("its name", {"its": "point"}, rows[0]["numbers"])])

    def test_the_estimate_names_each_experiment(self):
        one = harness.Experiment(3, "a", "a", None)
        pairs = [(one, harness.Job("x", 60, None)), (one, harness.Job("y", 30, None)), (one, harness.Job("z", 120, None, 2))]
        lines = run_all.estimate_of(pairs).splitlines()
        self.assertEqual(lines[0], "experiment  3:   2 jobs,   1.5 minutes; 1 over several GPUs, 2.0 minutes")
        self.assertEqual(lines[1], "2 jobs, about 2 minutes of one GPU; 1 over several, 2 minutes")

    def test_rows_appended_by_many_threads_are_all_there(self):
        path = self.folder / "rows.json"

        def append_ten(number):
            for row in range(10):
                result_rows.append(path, {"thread": number, "row": row})

        threads = [threading.Thread(target=append_ten, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(result_rows.load(path)), 40)
        self.assertEqual(len(path.read_text(encoding="utf-8").splitlines()), 42)

    def test_a_dry_run_runs_and_writes_nothing(self):
        job = harness.Job("writes", 1, lambda runner: runner.add({}, "relay", {}))
        experiment = harness.Experiment(42, "test", "a test", lambda settings: [job])
        runner = harness.PrintingRunner(self.settings, MACHINE, PROGRAM_RUN)
        self.addCleanup(runner.close)
        harness.work([runner], [(experiment, job), (experiment, job_of("fails", "fail"))])
        self.assertFalse(self.settings.results.exists())

    def test_merging_a_file_adds_only_what_is_new(self):
        path, other = self.folder / "a.json", self.folder / "b.json"
        result_rows.append(path, {"job": "1", "point": {}})
        for number in "12":
            result_rows.append(other, {"job": number, "point": {"written": "otherwise"}})
        self.assertEqual(result_rows.merge(path, other), 1)
        self.assertEqual(result_rows.merge(path, other), 0)
        self.assertEqual([row["job"] for row in result_rows.load(path)], ["1", "2"])

    def test_an_archive_of_results_is_merged_once(self):
        there, here = self.folder / "there", self.folder / "here"
        result_rows.append(there / "experiment_42_test.json", {"job": "1"})
        result_rows.append(here / "experiment_42_test.json", {"job": "0"})
        run_all.pack(there, self.folder / "results.tar.gz")
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()):
                run_all.merge(self.folder / "results.tar.gz", here)
        self.assertEqual(result_rows.load(here / "experiment_42_test.json"), [{"job": "0"}, {"job": "1"}])

    def test_workers_that_end_jobs_at_the_same_time_archive_one_after_another(self):
        result_rows.append(self.folder / "here" / "experiment_42_test.json", {"job": "1" * 200_000})
        failures = []

        def pack_often():
            try:
                for _ in range(20):
                    run_all.pack(self.folder / "here", self.folder / "results.tar.gz")
            except OSError as error:
                failures.append(error)

        threads = [threading.Thread(target=pack_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_each_scale_has_jobs_with_names_of_their_own(self):
        for scale in harness.SCALES:
            settings = harness.Settings(scale=scale)
            for experiment in run_all.all_experiments():
                names = [job.name for job in experiment.jobs(settings)]
                self.assertTrue(names, f"experiment {experiment.number} has no job at scale {scale}")
                self.assertEqual(len(names), len(set(names)), f"experiment {experiment.number}, {scale}")

    def test_jobs_of_several_gpus_come_last_on_one_worker_and_stay_where_there_are_fewer(self):
        pairs = [(None, harness.Job(f"of {n}", 1, lambda runner: None, n)) for n in (2, 1, 4, 1)]
        passes = run_all.passes_of(pairs, harness.Settings(device="cuda"), 2)
        self.assertEqual([(n, [job.name for _, job in of]) for n, of in passes], [(2, ["of 1", "of 1"]), (1, ["of 2"])])
        self.assertEqual(run_all.passes_of(pairs, harness.Settings(), 1), [(1, pairs)])

    def test_each_line_of_the_plan_names_a_job_and_the_plan_has_all_experiments(self):
        settings = harness.Settings(device="cuda", results=self.folder)
        experiments = run_all.all_experiments()
        seen = set()
        for line in run_all.read_plan(ROOT / "bench" / "experiments" / "h200.plan"):
            chosen = harness.select(experiments, settings, [line])
            self.assertTrue(chosen, f"{line} matches no job")
            seen |= {(experiment.number, job.name) for experiment, job in chosen}
        everything = {(experiment.number, job.name) for experiment, job in harness.select(experiments, settings)}
        self.assertEqual(everything - seen, set())

    @unittest.skipUnless(shutil.which("zstd"), "the program zstd is not here")
    def test_several_workers_unpack_a_file_once(self):
        source = self.folder / "data" / "set"
        source.mkdir(parents=True)
        (source / "table.csv").write_text("1,2\n" * 100_000, encoding="utf-8")
        subprocess.run(["zstd", "-q", "--rm", source / "table.csv"], check=True)
        found, unpacked = [], self.folder / "unpacked"
        with unittest.mock.patch.object(workloads, "UNPACKED", unpacked):
            take = lambda: found.append(workloads.data_file("set/table.csv", source.parent))  # noqa: E731
            threads = [threading.Thread(target=take) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(found, [unpacked / "set" / "table.csv"] * 8)
        self.assertEqual(len(found[0].read_text(encoding="utf-8")), 400_000)

    def test_nested_requests_share_as_their_levels_say(self):
        requests = workloads.nested_requests(32, [(1, 10), (4, 20), (8, 30)], own=5, output_len=3, n_vocab=1000)
        self.assertEqual({(len(prompt), output) for prompt, output in requests}, {(65, 3)})
        for length, count in ((10, 1), (30, 4), (60, 8), (65, 32)):
            self.assertEqual(len({tuple(prompt[:length]) for prompt, _ in requests}), count)

    def test_strangers_share_nothing(self):
        requests = workloads.mixed_requests(20, 0.25, shared=16, own=4, output_len=1, n_vocab=1000)
        begins = [tuple(prompt[:16]) for prompt, _ in requests]
        self.assertEqual(len(set(begins)), 6)
        self.assertEqual(max(begins.count(begin) for begin in begins), 15)

    def test_numbers_are_rounded_and_other_values_kept(self):
        value = {"a": [0.123456789, 12345678.9, 7, "x", None, True], "b": {"c": 1e-9}}
        self.assertEqual(result_rows.rounded(value), {"a": [0.1234568, 12345680.0, 7, "x", None, True], "b": {"c": 1e-9}})

    def test_rows_are_one_a_line(self):
        text = result_rows.dump([{"a": 1}, {"b": [2, 3]}])
        self.assertEqual(text, '[\n{"a": 1},\n{"b": [2, 3]}\n]\n')
        self.assertEqual(json.loads(text), [{"a": 1}, {"b": [2, 3]}])


if __name__ == "__main__":
    unittest.main()
