"""The manifests of deploy/kubernetes against the schemas of the Kubernetes API, against each other, and against the program.

Schemas of built-in kinds come from the package kubernetes-validate, in the oldest and the newest version that is checked.
Those of PodMonitor and InferencePool are below: the fields that their published API references list, as far as we use them.
They were not checked by the definitions (CRDs) themselves, nor by a cluster.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BINARY, DEPLOY, ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
FOLDER = DEPLOY / "kubernetes"
VERSIONS = ("1.30", "1.37")

LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}, "minProperties": 1}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
METADATA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": LABELS},
    "required": ["name"],
    "additionalProperties": False,
}


def resource(specification: dict) -> dict:
    """The schema of a resource with this spec."""
    properties = {"apiVersion": {}, "kind": {}, "metadata": METADATA, "spec": specification}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


CUSTOM = {
    # https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitor
    ("monitoring.coreos.com/v1", "PodMonitor"): resource(
        {
            "type": "object",
            "properties": {
                "selector": {"type": "object", "properties": {"matchLabels": LABELS}, "additionalProperties": False},
                "podMetricsEndpoints": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "port": {"type": "string"},
                            "path": {"type": "string"},
                            "interval": DURATION,
                            "scrapeTimeout": DURATION,
                        },
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["selector", "podMetricsEndpoints"],
            "additionalProperties": False,
        }
    ),
    # https://gateway-api-inference-extension.sigs.k8s.io/reference/spec/
    ("inference.networking.k8s.io/v1", "InferencePool"): resource(
        {
            "type": "object",
            "properties": {
                "selector": {
                    "type": "object",
                    "properties": {"matchLabels": LABELS},
                    "required": ["matchLabels"],
                    "additionalProperties": False,
                },
                "targetPorts": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 8,
                    "items": {
                        "type": "object",
                        "properties": {"number": PORT},
                        "required": ["number"],
                        "additionalProperties": False,
                    },
                },
                "endpointPickerRef": {
                    "type": "object",
                    "properties": {
                        "group": {"type": "string"},
                        "kind": {"type": "string"},
                        "name": {"type": "string"},
                        "port": {"type": "object", "properties": {"number": PORT}, "required": ["number"]},
                        "failureMode": {"enum": ["FailOpen", "FailClose"]},
                    },
                    "required": ["name", "port"],  # the port may be left out for kinds other than Service only
                    "additionalProperties": False,
                },
            },
            "required": ["selector", "targetPorts", "endpointPickerRef"],
            "additionalProperties": False,
        }
    ),
}


def manifests() -> list[tuple[str, dict]]:
    """Every resource with the name of its file. Two files are no resources of a cluster."""
    others = ("kustomization.yaml", "prometheus-adapter.yaml")
    files = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name not in others]
    return [(path.name, document) for path in files for document in yaml.safe_load_all(path.read_text())]


MANIFESTS = manifests()
DEPLOYMENTS = [pytest.param(document, id=name) for name, document in MANIFESTS if document["kind"] == "Deployment"]


def of_kind(kind: str) -> dict:
    """The only manifest of a kind."""
    return next(document for _, document in MANIFESTS if document["kind"] == kind)


def container(deployment: dict) -> dict:
    """The container of a deployment's pods."""
    return deployment["spec"]["template"]["spec"]["containers"][0]


def flags(deployment: dict) -> dict[str, str]:
    """The flags of the program."""
    words = [word for word in container(deployment)["args"] if word.startswith("--")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "document"), [pytest.param(*pair, id=pair[0]) for pair in MANIFESTS])
def test_a_manifest_keeps_to_its_schema(name: str, document: dict, version: str) -> None:
    custom = CUSTOM.get((document["apiVersion"], document["kind"]))
    if custom:
        pytest.importorskip("jsonschema", reason="jsonschema is not installed").validate(document, custom)
    else:
        schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
        assert schemas.validate(document, version, strict=True) == version


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("deployment.yaml", "spec.template.spec.terminationGracePeriod", 5),
        ("deployment.yaml", "spec.template.spec.containers.0.livenessProbe.httpGet.paths", "/"),
        ("autoscaler.yaml", "spec.metrics.0.pods.target.averageValue", ["1"]),
        ("disruption-budget.yaml", "spec.maxUnavailablePods", 1),
        ("pod-monitor.yaml", "spec.podMetricsEndpoints.0.intervall", "5s"),
        ("pod-monitor.yaml", "spec.podMetricsEndpoints.0.interval", "often"),
        ("inference-pool.yaml", "spec.targetPortNumber", 8000),
        ("inference-pool.yaml", "spec.targetPorts.0.number", 70000),
    ],
)
def test_the_schemas_find_mistakes(file: str, path: str, value: object) -> None:
    document = yaml.safe_load((FOLDER / file).read_text())
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place[parent]
    place[last] = value
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    with pytest.raises(jsonschema.ValidationError):
        test_a_manifest_keeps_to_its_schema(file, document, VERSIONS[0])


def test_every_selector_selects_the_pods() -> None:
    for _, document in MANIFESTS:
        specification = document["spec"]
        wanted = specification.get("selector")
        if wanted is None:
            assert document["kind"] == "HorizontalPodAutoscaler"
            continue
        wanted = wanted.get("matchLabels", wanted)
        for deployment in DEPLOYMENTS:
            labels = deployment.values[0]["spec"]["template"]["metadata"]["labels"]
            assert wanted.items() <= labels.items()


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_ports_agree(deployment: dict) -> None:
    port, *for_routers = container(deployment)["ports"]
    events = json.loads(flags(deployment).get("--kv-events-config", "{}"))
    assert [entry["containerPort"] for entry in for_routers] == ([5557, 5558] if events else [])
    assert events.get("replay_endpoint") in (None, "tcp://*:5558")
    assert str(port["containerPort"]) == flags(deployment)["--port"]
    assert of_kind("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    assert of_kind("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
    assert of_kind("InferencePool")["spec"]["targetPorts"] == [{"number": port["containerPort"]}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(deployment)[probe]["httpGet"]["port"] == port["name"]


def test_the_autoscaler_and_the_adapter_agree() -> None:
    adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())
    metric = of_kind("HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert [rule["name"]["as"] for rule in adapter["rules"]["custom"]] == [metric]


def test_the_kustomization_names_files() -> None:
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]:
        assert (FOLDER / name).exists()


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_pod_has_the_time_to_drain(deployment: dict) -> None:
    pause = int(container(deployment)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = int(flags(deployment)["--shutdown-timeout"])
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= pause + drain + 5


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_pod_has_the_gpus_that_its_ranks_need(deployment: dict) -> None:
    given = flags(deployment)
    limits = container(deployment)["resources"]["limits"]
    n_gpus = int(given.get("--tensor-parallel-size", "1")) if given.get("--device") == "cuda" else 0
    assert int(limits.get("nvidia.com/gpu", "0")) == n_gpus
    assert container(deployment)["resources"]["requests"].get("nvidia.com/gpu") == limits.get("nvidia.com/gpu")
    memory = [volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if volume["name"] == "shared-memory"]
    assert bool(memory) == (n_gpus > 1)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_mounts_and_paths_agree(deployment: dict) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container(deployment)["volumeMounts"]}
    volumes = {volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert mounts.keys() == volumes
    paths = [value for value in flags(deployment).values() if value.startswith("/")]
    paths += [entry["value"] for entry in container(deployment)["env"] if entry.get("value", "").startswith("/")]
    for path in paths:
        assert any(path.startswith(mount) for mount in mounts.values()), path


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_program_knows_the_flags_and_the_probes(deployment: dict) -> None:
    endpoints = (ROOT / "docs/api.md").read_text()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f"`{container(deployment)[probe]['httpGet']['path']}`" in endpoints
    if not BINARY.exists():
        pytest.skip(f"there is no {BINARY}")
    known = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    given = list(flags(deployment))
    if "--tensor-parallel-size" not in known and "--tensor-parallel-size" in given:
        given.remove("--tensor-parallel-size")
    for flag in given:
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", known), f"baton serve has no {flag}"
    if len(given) < len(flags(deployment)):
        pytest.skip("this program has no --tensor-parallel-size in its help yet; the other flags are there")


@pytest.mark.skipif(not BINARY.exists(), reason=f"there is no {BINARY}")
@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_arguments_serve(tmp_path: Path, deployment: dict) -> None:
    """All arguments, with the demo model on this machine's processor instead of model and GPUs."""
    (tmp_path / "shop.txt").write_text("You answer questions about a shop.")
    (tmp_path / "keys.json").write_text('{"keys": [{"name": "shop", "key": "sk-1"}]}')
    here = {
        "/etc/baton/prefixes": str(tmp_path),
        "/etc/baton/keys": str(tmp_path),
        "tcp://*:5558": f"ipc://{tmp_path}/replay",
        '"enable': f'"endpoint": "ipc://{tmp_path}/events", "enable',
    }
    words = ["serve", "demo", "--kv-cache-memory-bytes=64M"]
    for word in container(deployment)["args"][2:]:
        for name, place in here.items():
            word = word.replace(name, place)
        if not word.startswith(("--device", "--tensor-parallel-size", "--kv-cache-memory-bytes")):
            words.append("--port=0" if word.startswith("--port=") else word)
    with subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "event=serving" in line:
                break
        process.terminate()
        assert process.wait(60) == 0, "".join(lines)
    assert any("event=serving" in line for line in lines), "".join(lines)
