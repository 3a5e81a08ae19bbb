#!/usr/bin/env python3
"""Measures Baton behind Ray Serve on one machine: hit rates by router, a killed replica, and what Ray costs a token.

    deploy/ray/measure.py --binary build/cpu-release/bin/baton --requests 10000 --output build/replicas.json

Two replicas of the demo model, each with a KV cache that holds nine of the sixteen shared prompts, so that routing decides
whether a prompt is found. Every request streams its answer. Arms: `direct` (two servers without Ray, by turns), one for each
router, and `killed`: prefix routing, while a server process, and later an actor of Ray, is killed with SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"  # for the workers of Ray
sys.path.insert(0, str(HERE))

import load  # noqa: E402
import ray  # noqa: E402
from baton_ray.application import Settings, build, command_line  # noqa: E402
from baton_ray.process import BatonProcess  # noqa: E402
from ray import serve  # noqa: E402

ROUTERS = ("round-robin", "ray-prefix", "prefix")
KV_BYTES_PER_TOKEN = 3072  # of the demo model: 6 layers x 2 x 128 x bfloat16
PROMPT_LINES = 24
CACHED_PROMPTS = 9
HIT = re.compile(r"^vllm:prefix_cache_(hits|queries)_total\{[^}]*\} (\S+)$", re.MULTILINE)


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url: str) -> str:
    """The body of a page."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def cache_counts(urls: list[str]) -> tuple[float, float]:
    """Tokens found in the caches after all urls, and tokens looked up."""
    found = [pair for url in urls for pair in HIT.findall(fetch(f"{url}/metrics"))]
    return sum(float(n) for name, n in found if name == "hits"), sum(float(n) for name, n in found if name == "queries")


def cpu_seconds(of_baton: bool) -> float:
    """CPU time of this process's descendants: of the baton processes, or of all others, which are Ray's."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    names: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        pid = int(stat.parent.name)
        fields = text[text.rindex(")") + 2 :].split()
        names[pid] = text[text.index("(") + 1 : text.rindex(")")]
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = int(fields[11]) + int(fields[12])
    pending, total = list(children.get(os.getpid(), [])), 0
    while pending:
        pid = pending.pop()
        pending += children.get(pid, [])
        total += ticks[pid] if names[pid].startswith("baton") == of_baton else 0
    return total / os.sysconf("SC_CLK_TCK")


class Measurement:
    """The settings of a run, and its rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make the shared prompts."""
        self.options = options
        self.rows: dict[str, dict] = {}
        catalogue = (ROOT / "models/demo/catalogue.txt").read_text()
        self.shared = load.prompts(catalogue, options.prefixes, PROMPT_LINES, seed=7)
        self.flags = {"threads": 1, "max-model-len": 2048, "max-num-seqs": 32}

    def size_cache(self) -> None:
        """Choose the bytes of the KV cache by the tokens of the shared prompts."""
        server = BatonProcess(command_line(self.settings("load")), logging.getLogger("measure"), print)
        server.start(60)
        counts = []
        for prompt in self.shared:
            body = json.dumps({"messages": [{"role": "system", "content": prompt}]}).encode()
            request = urllib.request.Request(f"{server.url}/tokenize", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                counts.append(json.load(answer)["count"])
        server.stop(30)
        self.prompt_tokens = round(statistics.mean(counts))
        self.flags["kv-cache-memory-bytes"] = int(self.prompt_tokens * CACHED_PROMPTS * KV_BYTES_PER_TOKEN)

    def settings(self, router: str) -> Settings:
        """Two replicas behind a router."""
        two = {"min_replicas": 2, "max_replicas": 2}
        return Settings(binary=self.options.binary, router=router, autoscaling=two, flags=self.flags, health_check_period_s=2)

    def measure(self, name: str, urls: list[str], n_requests: int, at: dict | None = None) -> None:
        """One arm: warm up, all requests, and then one client alone, whose tokens' times are compared."""
        asyncio.run(load.stream_all(urls, self.shared, 4 * self.options.prefixes, 4, 2, seed=1))
        hits, queries = cache_counts(urls)
        ray_cpu, baton_cpu = cpu_seconds(of_baton=False), cpu_seconds(of_baton=True)
        options = self.options
        outcomes = asyncio.run(load.stream_all(urls, self.shared, n_requests, options.concurrency, options.tokens, 2, at))
        ray_cpu, baton_cpu = cpu_seconds(of_baton=False) - ray_cpu, cpu_seconds(of_baton=True) - baton_cpu
        hits, queries = cache_counts(urls)[0] - hits, cache_counts(urls)[1] - queries
        row = outcomes.row() | {"requests": n_requests}
        if at is None:
            before = cpu_seconds(of_baton=False)
            alone = asyncio.run(load.stream_all(urls, self.shared[:1], 20, 1, 128, seed=3))
            alone_cpu = cpu_seconds(of_baton=False) - before
            row |= {
                "hit_rate": round(hits / queries, 4) if queries else None,
                "baton_cpu_us_per_token": round(1e6 * baton_cpu / max(outcomes.tokens, 1), 1),
                "ray_cpu_us_per_token": round(1e6 * ray_cpu / max(outcomes.tokens, 1), 1),
                "alone_us_per_token": round(1e6 * alone.seconds / max(alone.tokens, 1), 1),
                "alone_ray_cpu_us_per_token": round(1e6 * alone_cpu / max(alone.tokens, 1), 1),
                "alone_first_token_ms": round(1e3 * statistics.median(alone.first_token_s), 1),
            }
        self.rows[name] = row
        print(name, json.dumps(row), flush=True)

    def direct(self) -> None:
        """Two servers without Ray."""
        servers = [BatonProcess(command_line(self.settings("load")), logging.getLogger("measure"), print) for _ in range(2)]
        for server in servers:
            server.start(60)
        self.measure("direct", [server.url for server in servers], self.options.compare)
        for server in servers:
            server.stop(30)

    def through_ray(self, url: str, name: str, router: str, is_killed: bool = False) -> None:
        """The same through Ray Serve."""
        serve.run(build(self.settings(router).model_dump()), name="baton", route_prefix="/")
        n = self.options.requests if is_killed else self.options.compare
        at = {n // 3: lambda: kill_one("pid"), 2 * n // 3: lambda: kill_one("actor_pid")} if is_killed else None
        self.measure(name, [url], n, at)
        if is_killed:
            deadline = time.monotonic() + 60
            while len(replicas()) < 2 and time.monotonic() < deadline:
                time.sleep(1)
            self.rows[name]["replicas_afterwards"] = len(replicas())
        serve.delete("baton")


def replicas() -> list[dict]:
    """The replicas that answer, with the ids of their processes."""
    handle = serve.get_deployment_handle("BatonReplica", "baton")
    return [found for found in handle.broadcast("whereabouts").results(timeout_s=30) if isinstance(found, dict)]


def kill_one(which: str) -> None:
    """SIGKILL to the server process (`pid`) or the actor (`actor_pid`) of one replica."""
    victim = replicas()[0]
    print(f"killing the {which} of replica {victim['replica']}", flush=True)
    os.kill(victim[which], signal.SIGKILL)


def machine() -> str:
    """Commit and processor, for the record."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"commit {commit.stdout.strip()}, {os.cpu_count()} CPUs, {model[1] if model else 'unknown'}, Ray {ray.__version__}"


def main() -> None:
    """Run the arms, print a line for each, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/cpu-release/bin/baton"))
    parser.add_argument("--requests", type=int, default=300, help="of the arm in which replicas are killed")
    parser.add_argument("--compare", type=int, help="of each other arm (default: the same)")
    parser.add_argument("--prefixes", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8, help="of each answer")
    parser.add_argument("--arms", default=",".join(("direct", *ROUTERS, "killed")))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    options.compare = options.compare or options.requests
    arms = options.arms.split(",")
    measurement = Measurement(options)
    measurement.size_cache()
    print(machine(), f"load average {os.getloadavg()[0]:.1f}", f"{measurement.prompt_tokens} tokens a prompt", flush=True)
    if "direct" in arms:
        measurement.direct()
    ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    for arm in arms:
        if arm != "direct":
            killed = arm == "killed"
            measurement.through_ray(f"http://127.0.0.1:{port}", arm, "prefix" if killed else arm, killed)
    serve.shutdown()
    ray.shutdown()
    if options.output:
        result = {"machine": machine(), "command": " ".join(sys.argv), "flags": measurement.flags, "rows": measurement.rows}
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    lost = sum(row["lost_without_a_reason"] for row in measurement.rows.values())
    sys.exit(f"{lost} requests were lost without a reason" if lost else 0)


if __name__ == "__main__":
    main()
