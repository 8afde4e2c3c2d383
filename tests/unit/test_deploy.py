"""What is in `deploy/` holds together, checked without a cluster, an engine or a network; and the checks do see faults."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests import manifests
from tests.manifests import K8S, PATCHES, ROOT, Manifest, breaches, commands, documents, kustomizations, of_kind
from worker.settings import PREFIX, WorkerSettings, load

VERSIONS = ("1.30", "1.34", "1.37")
"""The oldest Kubernetes that knows every field used here, one in between, and the newest whose schemas we have."""

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "compose.yaml"
FILES = sorted({*K8S.rglob("*.yaml")} - {*K8S.rglob("kustomization.yaml")})
OTHERS_KINDS = {"ScaledObject", "TriggerAuthentication"}


@pytest.fixture(scope="module")
def production() -> list[Manifest]:
    """The overlay as kustomize makes it."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl, whose `kustomize` puts the overlay together; nothing else of it is used")
    made = subprocess.run(
        ["kubectl", "kustomize", str(K8S / "overlays/production")], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return [found for found in yaml.safe_load_all(made.stdout) if found]


# --- schemas -----------------------------------------------------------------------------------------------------------


def invalid(found: Manifest, version: str) -> str:
    try:
        kubernetes_validate.validate(found, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{found.get('kind')}: {error}"
    return ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", [path for path in FILES if path not in PATCHES], ids=lambda path: path.name)
def test_every_manifest_is_valid(path: Path, version: str) -> None:
    found = documents(path)
    assert found
    assert not [invalid(one, version) for one in found if one["kind"] not in OTHERS_KINDS and invalid(one, version)]


def test_a_field_that_does_not_exist_is_seen() -> None:
    found = documents(K8S / "base/gateway.yaml")[0]
    found["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    assert invalid(found, VERSIONS[0])


def test_every_file_is_part_of_a_kustomization_or_an_example() -> None:
    listed: set[Path] = {manifests.EXAMPLE}
    for folder, kustomization in kustomizations().items():
        assert kustomization["kind"] in ("Kustomization", "Component")
        parts = kustomization.get("resources", []) + kustomization.get("components", [])
        parts += [patch["path"] for patch in kustomization.get("patches", [])]
        assert all((folder / part).exists() for part in parts)
        listed |= {(folder / part).resolve() for part in parts}
    assert set(FILES) <= listed


def test_the_overlay_is_put_together_and_valid(production: list[Manifest]) -> None:
    assert not [line for one in production if one["kind"] not in OTHERS_KINDS and (line := invalid(one, VERSIONS[-1]))]
    spaces = {found["metadata"].get("namespace") for found in production if found["kind"] != "Namespace"}
    assert spaces == {"sapwood"}
    images = {container["image"] for pod in manifests.pods(production) for container in pod.containers}
    assert len(images) == 1 and not images.pop().endswith((":latest", "sapwood"))


def test_who_is_steered_by_an_autoscaler_states_no_number(production: list[Manifest]) -> None:
    scalers = of_kind(production, "HorizontalPodAutoscaler", "ScaledObject")
    steered = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in scalers}
    stated = {found["metadata"]["name"] for found in of_kind(production, "Deployment") if "replicas" in found["spec"]}
    assert steered == {"sapwood-index-worker", "sapwood-query-worker"}
    assert stated == {"sapwood-gateway"}


# --- the rules, and that they see --------------------------------------------------------------------------------------


def test_the_base_keeps_every_rule() -> None:
    assert breaches(manifests.base()) == []


def test_the_overlay_keeps_every_rule(production: list[Manifest]) -> None:
    assert breaches(production) == []


def named(found: list[Manifest], kind: str, name: str) -> Any:
    return next(one for one in of_kind(found, kind) if one["metadata"]["name"] == f"sapwood{name}")


def pod_of(found: list[Manifest], name: str = "-query-worker") -> Any:
    return named(found, "Deployment", name)["spec"]["template"]["spec"]


def variable(found: list[Manifest], name: str) -> Any:
    return next(one for one in pod_of(found)["containers"][0]["env"] if one["name"] == name)


FAULTS: dict[str, tuple[Callable[[list[Manifest]], Any], str]] = {
    "root": (lambda m: pod_of(m)["securityContext"].update(runAsUser=0), "may run as root"),
    "writable": (
        lambda m: pod_of(m)["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False),
        "may write its root",
    ),
    "capability": (
        lambda m: pod_of(m)["initContainers"][0]["securityContext"].update(capabilities={"add": ["NET_RAW"]}),
        "may gain privileges",
    ),
    "host path": (lambda m: pod_of(m)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}), "without bounds"),
    "token": (lambda m: named(m, "ServiceAccount", "-worker").pop("automountServiceAccountToken"), "no account"),
    "no limit": (lambda m: pod_of(m)["containers"][0]["resources"].pop("limits"), "does not state its resources"),
    "small": (lambda m: pod_of(m)["containers"][0]["resources"]["limits"].update(memory="1Gi"), "no room"),
    "misspelt": (lambda m: variable(m, "SAPWOOD_QUERY_JOBS").update(name="SAPWOOD_QUERY_JOB"), "is no setting"),
    "invalid": (lambda m: variable(m, "SAPWOOD_QUERY_JOBS").update(value="many"), "SAPWOOD_QUERY_JOBS"),
    "idle": (lambda m: variable(m, "SAPWOOD_QUERY_JOBS").update(value="0"), "nothing would be worked on"),
    "written secret": (
        lambda m: variable(m, "SAPWOOD_OPENAI_API_KEY").update({"value": "key", "valueFrom": {}}),
        "is written down",
    ),
    "secret in plain": (
        lambda m: named(m, "ConfigMap", "")["data"].update(SAPWOOD_REDIS_URL="redis://:x@y"),
        "is in a ConfigMap",
    ),
    "unknown key": (
        lambda m: variable(m, "SAPWOOD_REDIS_URL")["valueFrom"]["secretKeyRef"].update(key="redis"),
        "the example lacks",
    ),
    "command": (lambda m: pod_of(m)["containers"][0].update(args=["work"]), "does not exist"),
    "image": (lambda m: pod_of(m)["containers"][0].update(image="busybox"), "entry point"),
    "exec probe": (
        lambda m: pod_of(m)["containers"][0]["livenessProbe"]["exec"].update(command=["python", "-m", "worker.pulse"]),
        "the probe",
    ),
    "http probe": (
        lambda m: pod_of(m, "-gateway")["containers"][0]["readinessProbe"]["httpGet"].update(path="/ready"),
        "is not served",
    ),
    "unprobed": (lambda m: pod_of(m)["containers"][0].pop("startupProbe"), "is not probed"),
    "hollow readiness": (
        lambda m: pod_of(m)["containers"][0].update(readinessProbe=pod_of(m)["containers"][0]["livenessProbe"]),
        "is not probed",
    ),
    "hurry": (lambda m: pod_of(m).update(terminationGracePeriodSeconds=20), "before it has drained"),
    "gateway in a hurry": (
        lambda m: pod_of(m, "-gateway").update(terminationGracePeriodSeconds=45),
        "before it has drained",
    ),
    "wide selector": (
        lambda m: named(m, "Deployment", "-gateway")["spec"]["selector"]["matchLabels"].popitem(),
        "selects",
    ),
    "no budget": (
        lambda m: named(m, "PodDisruptionBudget", "-gateway")["spec"]["selector"]["matchLabels"].update(x="y"),
        "disruption budget",
    ),
    "service": (lambda m: named(m, "Service", "-gateway")["spec"]["selector"].update(x="y"), "leads nowhere"),
    "all open": (lambda m: m.remove(named(m, "NetworkPolicy", "-deny-all")), "forbids everything"),
    "no names": (lambda m: m.remove(named(m, "NetworkPolicy", "-dns")), "may not reach [53]"),
    "anybody": (
        lambda m: named(m, "NetworkPolicy", "-gateway")["spec"]["ingress"][0].update({"from": []}),
        "reached at",
    ),
    "metadata service": (
        lambda m: named(m, "NetworkPolicy", "-public")["spec"]["egress"][0]["to"][0]["ipBlock"].update({"except": []}),
        "private addresses",
    ),
    "two hands": (
        lambda m: named(m, "ScaledObject", "-index-worker")["spec"]["scaleTargetRef"].update(
            name="sapwood-query-worker"
        ),
        "autoscalers steer",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str) -> None:
    break_it, expected = FAULTS[fault]
    found = deepcopy(manifests.base())
    break_it(found)
    seen = breaches(found)
    assert any(expected in line for line in seen), seen


# --- the image ---------------------------------------------------------------------------------------------------------


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with continued lines joined and comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word
    ]


def image_faults(text: str) -> Iterator[str]:
    """What a reviewer would say of a Dockerfile."""
    found = instructions(text)
    froms = [rest for word, rest in found if word == "FROM"]
    bases = [rest.partition("=")[2] for word, rest in found if word == "ARG" and rest.startswith("PYTHON_IMAGE=")]
    last = [number for number, (word, _) in enumerate(found) if word == "FROM"][-1]
    final = found[last:]
    users = [rest for word, rest in final if word == "USER"]
    if len(froms) < 2 or {one.split()[0] for one in froms} != {"${PYTHON_IMAGE}"} or len(bases) != 1:
        yield "not two stages on one base"
    if not re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", "".join(bases)):
        yield "the base is not exact"
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        yield "the user is not a number above 0"
    if any(word == "ADD" for word, _ in found):
        yield "ADD fetches and unpacks"
    if any(word == "RUN" for word, _ in final):
        yield "the final stage installs something"
    if [rest for word, rest in final if word == "ENTRYPOINT"] != ['["sapwood"]']:
        yield "the entry point is not the command, or a shell is between"
    if any(re.search("(?i)(secret|password|token|api_key)", rest) for word, rest in found if word in ("ENV", "ARG")):
        yield "a secret is part of the image"
    written = [name for word, rest in final if word == "ENV" for name in re.findall(r"\b(SAPWOOD_\w+)=", rest)]
    yield from (f"{name} is no setting" for name in written if name.removeprefix(PREFIX).lower() not in _FIELDS)


_FIELDS = WorkerSettings.model_fields


def test_the_image_is_small_exact_and_not_root() -> None:
    assert list(image_faults(DOCKERFILE.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("USER 10001:10001", "USER 0:0"),
        ("USER 10001:10001", "USER sapwood"),
        ("USER 10001:10001", ""),
        ("ARG PYTHON_IMAGE=python:", "ARG PYTHON_IMAGE=python:latest #"),
        ("COPY --from=build", "ADD https://example.org/x /x\nCOPY --from=build"),
        ("STOPSIGNAL SIGTERM", "RUN apt-get update"),
        ('ENTRYPOINT ["sapwood"]', "ENTRYPOINT sapwood"),
        ("SAPWOOD_LOG_FORMAT=json", "SAPWOOD_LOG_FROMAT=json"),
        ("SAPWOOD_LOG_FORMAT=json", "SAPWOOD_OPENAI_API_KEY=x"),
    ],
)
def test_a_fault_of_the_image_is_seen(old: str, new: str) -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert old in text
    assert list(image_faults(text.replace(old, new)))


def test_the_build_gets_what_it_copies_and_no_more() -> None:
    """The ignore file lets through exactly what the Dockerfile copies from here."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    sources = [rest.split()[:-1] for word, rest in instructions(DOCKERFILE.read_text("utf-8")) if word == "COPY"]
    copied = {name for names in sources for name in names if not names[0].startswith("--from")}
    assert "*" in lines
    assert let_in == copied
    assert all((ROOT / name).exists() for name in copied)


# --- one machine -------------------------------------------------------------------------------------------------------


def compose_faults(compose: Manifest) -> Iterator[str]:
    """What is wrong with a set of services for one machine."""
    services: dict[str, Manifest] = compose["services"]
    for name, service in services.items():
        if any(not port.startswith("127.0.0.1:") for port in service.get("ports", [])) or (
            service.get("ports") and name != "gateway"
        ):
            yield f"{name} is published"
        if name != "migrate" and not service.get("healthcheck", {}).get("test"):
            yield f"{name} has no health check"
        if re.search(r":(latest)?$", service["image"]) or ":" not in service["image"]:
            yield f"{name} has no exact image"
        yield from (f"{name} waits for {other}" for other in service.get("depends_on", {}) if other not in services)
        if service["image"].startswith("sapwood:"):
            yield from _our_service(name, service)


def _our_service(name: str, service: Manifest) -> Iterator[str]:
    if service["command"][0] not in commands():
        yield f"{name}: no such command"
    if not service.get("read_only") or service.get("cap_drop") != ["ALL"] or service.get("user") != "10001:10001":
        yield f"{name} is not confined"
    given = {
        key: re.sub(r"\$\{\w+:-\}", "", re.sub(r"\$\{\w+:\?[^}]*\}", "x", v))
        for key, v in service["environment"].items()
    }
    yield from (f"{name}: {key} is no setting" for key in given if key.removeprefix(PREFIX).lower() not in _FIELDS)
    assert load({"SAPWOOD_HOME": "/home/sapwood"} | given).database_url
    stop = int(service.get("stop_grace_period", "10s").removesuffix("s"))
    if name != "migrate" and stop < 1.5 * manifests.DRAIN_SECONDS:
        yield f"{name} is killed before it has drained"


def test_one_machine_is_set_up_as_it_should() -> None:
    assert list(compose_faults(documents(COMPOSE)[0])) == []


@pytest.mark.parametrize(
    ("service", "change", "expected"),
    [
        ("gateway", {"ports": ["8080:8080"]}, "published"),
        ("postgres", {"ports": ["127.0.0.1:5432:5432"]}, "published"),
        ("valkey", {"healthcheck": {}}, "health check"),
        ("worker", {"read_only": False}, "confined"),
        ("worker", {"stop_grace_period": "10s"}, "drained"),
        ("worker", {"command": ["work"]}, "command"),
        ("postgres", {"image": "pgvector/pgvector"}, "exact"),
    ],
)
def test_a_fault_of_one_machine_is_seen(service: str, change: Manifest, expected: str) -> None:
    compose = documents(COMPOSE)[0]
    compose["services"][service].update(change)
    assert any(expected in line for line in compose_faults(compose))
