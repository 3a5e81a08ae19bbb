"""A real Prometheus scrapes a live server: every query of the dashboard and every recording rule has an answer.

Needs the Debian package prometheus (packaging/install-packages deploy); what it reads is skipped where it is missing.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BINARY, DEPLOY

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
RULES = DEPLOY / "prometheus/rules.yml"
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian package prometheus)")
# How long a rate looks back, and what the dashboard's variables stand for.
WINDOW = "20s"
VARIABLES = {"$__rate_interval": WINDOW, "$job": ".*", "$instance": ".*", "$model": ".*"}


def dashboard() -> dict:
    """The dashboard of Grafana."""
    return json.loads((DEPLOY / "grafana/baton.json").read_text())


def queries() -> list:
    """The queries of all panels, as parameters named by panel."""
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [pytest.param(one["expr"], id=f"{panel['title']} {one['refId']}") for panel in panels for one in panel["targets"]]


def rules(kind: str) -> list[dict]:
    """The rules of a kind: record or alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
        for panel in panels
        for dx, dy in itertools.product(range(panel["gridPos"]["w"]), range(panel["gridPos"]["h"]))
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_variable_of_a_query_is_defined() -> None:
    known = {f"${variable['name']}" for variable in dashboard()["templating"]["list"]} | {"$__rate_interval"}
    for parameter in queries():
        assert set(re.findall(r"\$\w+", parameter.values[0])) <= known


def test_every_alert_says_what_to_do() -> None:
    for rule in rules("alert"):
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


@needs_promtool
def test_promtool_accepts_configuration_and_rules() -> None:
    for command in (["check", "config", "prometheus.yml"], ["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([PROMTOOL, *command], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_finds_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.read_text().replace("sum by (job", "summ by (job", 1))
    done = subprocess.run([PROMTOOL, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False)
    assert done.returncode != 0


class LivePrometheus:
    """A Prometheus that scrapes a server every second."""

    def __init__(self, port: int, page: str) -> None:
        """`page` is /metrics of the server."""
        self.url = f"http://127.0.0.1:{port}"
        self.page = page

    def ask(self, expression: str) -> list[dict]:
        """The samples of a query."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(url: str, body: dict | bytes) -> int:
    """The status of a POST."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def send_requests(url: str, seconds: float) -> None:
    """Requests behind one shared prompt, four at a time, with a refused one now and then."""
    catalogue = (DEPLOY.parent / "models/demo/catalogue.txt").read_text()
    deadline = time.monotonic() + seconds

    def client(number: int) -> None:
        for turn in itertools.count():
            if time.monotonic() > deadline:
                return
            question = {"role": "user", "content": f"What does article {number} {turn} cost?"}
            post(f"{url}/v1/chat/completions", {"messages": [{"role": "system", "content": catalogue}, question], "max_tokens": 24})
            post(f"{url}/v1/chat/completions", b"{")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePrometheus]:
    """Server and Prometheus, after fifteen seconds of requests."""
    if not PROMETHEUS:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    if not BINARY.exists():
        pytest.skip(f"there is no {BINARY}")
    folder = tmp_path_factory.mktemp("prometheus")
    port, own = free_port(), free_port()
    configuration = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    configuration["rule_files"] = [str(RULES)]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    server = [BINARY, "serve", "demo", "--host", "127.0.0.1", "--port", str(port), "--kv-cache-memory-bytes", "64M"]
    monitor = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    monitor += [f"--web.listen-address=127.0.0.1:{own}", "--log.level=warn"]
    with (folder / "log").open("wb") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in (server, monitor)]
    try:
        url = f"http://127.0.0.1:{port}"
        ready = [f"{url}/health", f"http://127.0.0.1:{own}/-/ready"]
        deadline = time.monotonic() + 60
        while ready and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(ready[0], timeout=5):
                    ready.pop(0)
            except OSError:
                time.sleep(0.1)
        assert not ready, (folder / "log").read_text()
        send_requests(url, 15)
        time.sleep(2)
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        yield LivePrometheus(own, page)
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(60)


@pytest.mark.parametrize("expression", queries())
def test_prometheus_answers_every_query_of_the_dashboard(live: LivePrometheus, expression: str) -> None:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    samples = live.ask(expression)
    assert samples
    assert any(sample["value"][1] != "NaN" for sample in samples)


@pytest.mark.parametrize("name", [rule["record"] for rule in rules("record")])
def test_prometheus_has_every_recorded_series(live: LivePrometheus, name: str) -> None:
    assert any(sample["value"][1] != "NaN" for sample in live.ask(name))


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in rules("alert")])
def test_every_metric_of_an_alert_exists(live: LivePrometheus, rule: dict) -> None:
    names = re.findall(r"(?:vllm|baton):\w+|http_requests_total", re.sub(r"instance:[\w:]+", "", rule["expr"]))
    for name in names:
        assert re.search(rf"^{name}[{{ ]", live.page, re.MULTILINE), name


def test_a_quiet_server_raises_no_alert(live: LivePrometheus) -> None:
    firing = live.ask('ALERTS{alertstate="firing"}')
    assert [sample["metric"]["alertname"] for sample in firing] == []
