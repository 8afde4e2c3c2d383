"""Reads what is in `deploy/`, and the rules that it has to keep. Each rule yields a line for each breach."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from pipeline import runs
from pipeline.adapters import arq_doorbell, neo4j_driver, openai_models, postgres_pool, redis_streams
from pipeline.errors import ConfigurationError
from pipeline.ingest import paid, prepare
from worker.cli import app
from worker.compose import SNAPSHOT_BYTES
from worker.settings import PREFIX, WorkerSettings, load

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
K8S = ROOT / "deploy" / "k8s"
PATCHES = {K8S / "components/keda/index-worker.yaml"}
EXAMPLE = K8S / "secret.example.yaml"

DRAIN_SECONDS = (
    runs.GRACE_SECONDS  # a unit hands itself back
    + paid.SAVE_GRACE  # what was paid for is saved first
    + prepare._GRACE
    + openai_models.CLOSE_GRACE
    + neo4j_driver.CLOSE_GRACE
    + 1.0  # Qdrant's client
    + 2 * arq_doorbell._GRACE_SECONDS
    + 2 * redis_streams._GRACE_SECONDS
    + 4 * postgres_pool.RELEASE_GRACE
    + 1.0  # the pulse
)
"""The longest that a worker takes from SIGTERM to its end, everything that can be slow being slow."""

PLACEHOLDERS = {"DATABASE_URL": "postgresql://db/x", "REDIS_URL": "redis://cache/0"}
"""For values that come from a Secret; other secrets may be any text."""


def documents(path: Path) -> list[Manifest]:
    """Every document of a file."""
    return [found for found in yaml.safe_load_all(path.read_text("utf-8")) if found]


def kustomizations() -> dict[Path, Manifest]:
    """Every kustomization by its folder."""
    return {path.parent: documents(path)[0] for path in sorted(K8S.rglob("kustomization.yaml"))}


def base() -> list[Manifest]:
    """The manifests of base and components as they stand, with the ConfigMaps that kustomize would make."""
    found: list[Manifest] = []
    for folder, kustomization in kustomizations().items():
        for name in kustomization.get("resources", []):
            if (folder / name).is_file():
                found += documents(folder / name)
        if folder.name == "base":
            for made in kustomization.get("configMapGenerator", []):
                data = dict(literal.split("=", 1) for literal in made["literals"])
                found.append(
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data}
                )
    return found


@dataclass(frozen=True)
class Pod:
    """A pod template, and the thing that makes such pods."""

    owner: Manifest

    @property
    def name(self) -> str:
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def labels(self) -> dict[str, str]:
        return self.owner["spec"]["template"]["metadata"]["labels"]

    @property
    def spec(self) -> Manifest:
        return self.owner["spec"]["template"]["spec"]

    @property
    def containers(self) -> list[Manifest]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [found for found in manifests if found["kind"] in kinds]


def pods(manifests: list[Manifest]) -> list[Pod]:
    return [Pod(found) for found in of_kind(manifests, "Deployment", "Job")]


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Whether a label selector takes these labels; operators other than `In` are not used here."""
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    listed = selector.get("matchExpressions", [])
    assert all(rule["operator"] == "In" for rule in listed)
    return exact and all(labels.get(rule["key"]) in rule["values"] for rule in listed)


def environment(manifests: list[Manifest], container: Manifest) -> dict[str, str]:
    """What a container would find, with a placeholder for each secret."""
    maps = {found["metadata"]["name"]: found["data"] for found in of_kind(manifests, "ConfigMap")}
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]
    for variable in container.get("env", []):
        placeholder = PLACEHOLDERS.get(variable["name"].removeprefix(PREFIX), "secret")
        found[variable["name"]] = variable.get("value", placeholder)
    return found


def commands() -> set[str]:
    """The commands of `sapwood`."""
    return {str(command.name or command.callback.__name__) for command in app.registered_commands if command.callback}


def amount(text: str) -> int:
    """Bytes of a Kubernetes quantity."""
    return int(text[:-2]) << {"Ki": 10, "Mi": 20, "Gi": 30}[text[-2:]]


# --- the rules ---------------------------------------------------------------------------------------------------------


def pods_are_confined(manifests: list[Manifest]) -> Iterator[str]:
    """Not root, no token, nothing to write on but bounded volumes, no capability."""
    for pod in pods(manifests):
        outer = pod.spec.get("securityContext", {})
        if not outer.get("runAsNonRoot") or not outer.get("runAsUser", 0) > 0:
            yield f"{pod.name} may run as root"
        if outer.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{pod.name} has no seccomp profile"
        if pod.spec.get("automountServiceAccountToken") is not False or pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.name} is told of the cluster"
        if not all(amount(volume.get("emptyDir", {}).get("sizeLimit", "0Mi")) for volume in pod.spec["volumes"]):
            yield f"{pod.name} has a volume without bounds"
        for container in pod.containers:
            inner = container.get("securityContext", {})
            if inner.get("allowPrivilegeEscalation") is not False or inner.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{pod.name} {container['name']} may gain privileges"
            if inner.get("readOnlyRootFilesystem") is not True:
                yield f"{pod.name} {container['name']} may write its root"


def accounts_exist(manifests: list[Manifest]) -> Iterator[str]:
    """Each pod has an account of its own that mounts no token."""
    found = {account["metadata"]["name"]: account for account in of_kind(manifests, "ServiceAccount")}
    for pod in pods(manifests):
        account = found.get(pod.spec.get("serviceAccountName", ""), {})
        if account.get("automountServiceAccountToken") is not False:
            yield f"{pod.name} has no account of its own without a token"


def resources_are_stated(manifests: list[Manifest]) -> Iterator[str]:
    """Memory is bounded; what answers queries has room for its snapshots twice."""
    for pod in pods(manifests):
        for container in pod.containers:
            stated = container.get("resources", {})
            if not {"cpu", "memory"} <= stated.get("requests", {}).keys() or "memory" not in stated.get("limits", {}):
                yield f"{pod.name} {container['name']} does not state its resources"
            elif container["name"] in ("worker", "gateway") and amount(stated["limits"]["memory"]) < 2 * SNAPSHOT_BYTES:
                yield f"{pod.name} has no room for its snapshots"


def settings_are_known(manifests: list[Manifest]) -> Iterator[str]:
    """Every variable is a setting, and together they are valid."""
    known = {PREFIX + field.upper() for field in WorkerSettings.model_fields}
    for pod in pods(manifests):
        for container in pod.containers:
            given = environment(manifests, container)
            yield from (f"{pod.name}: {name} is no setting" for name in sorted(given.keys() - known))
            try:
                load({"SAPWOOD_HOME": "/home/sapwood"} | given)
            except ConfigurationError as error:
                yield f"{pod.name}: {error}"


def secrets_stay_out(manifests: list[Manifest]) -> Iterator[str]:
    """A secret setting comes from the Secret that the example shows, and no Secret is made here."""
    keys = {line.strip(" #").partition(":")[0] for line in EXAMPLE.read_text("utf-8").splitlines()}
    secret = {
        PREFIX + name.upper() for name, field in WorkerSettings.model_fields.items() if SecretStr in _types(field)
    }
    if of_kind(manifests, "Secret"):
        yield "a Secret is made from a file"
    for plain in of_kind(manifests, "ConfigMap"):
        yield from (f"{name} is in a ConfigMap" for name in plain["data"].keys() & secret)
    for pod in pods(manifests):
        for variable in (variable for container in pod.containers for variable in container.get("env", [])):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if variable["name"] in secret and reference is None:
                yield f"{pod.name}: {variable['name']} is written down"
            if reference is not None and (reference["name"] != "sapwood" or reference["key"] not in keys):
                yield f"{pod.name}: the example lacks {reference['key']}"


def _types(field: Any) -> tuple[Any, ...]:
    annotation = field.annotation
    inner = [part for argument in getattr(annotation, "__args__", ()) for part in (argument, *_arguments(argument))]
    return (annotation, *inner)


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ())


def commands_exist(manifests: list[Manifest]) -> Iterator[str]:
    """What is run and what probes exist; every container runs the one image."""
    for pod in pods(manifests):
        for container in pod.containers:
            if container["image"].partition(":")[0].rpartition("/")[2] != "sapwood" or "command" in container:
                yield f"{pod.name} {container['name']} does not run the image's entry point"
            if container["args"][0] not in commands():
                yield f"{pod.name}: `sapwood {container['args'][0]}` does not exist"
            probes = [
                container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container
            ]
            for probe in probes:
                yield from (f"{pod.name}: {line}" for line in _probe(probe, container))


def _probe(probe: Manifest, container: Manifest) -> Iterator[str]:
    if "exec" in probe:
        python, flag, module, *rest = probe["exec"]["command"]
        if (
            (python, flag) != ("python", "-m")
            or importlib.util.find_spec(module) is None
            or rest not in ([], ["--ready"])
        ):
            yield f"the probe {shlex.join(probe['exec']['command'])} does not exist"
        return
    from worker.gateway.probes import router

    paths = {getattr(route, "path", "") for route in router.routes}
    if probe["httpGet"]["path"] not in paths or probe["httpGet"]["port"] not in {p["name"] for p in container["ports"]}:
        yield f"the probe {probe['httpGet']} is not served"


def every_server_is_probed(manifests: list[Manifest]) -> Iterator[str]:
    """Start, life and readiness, where readiness asks for more than life."""
    for deployment in of_kind(manifests, "Deployment"):
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            asked = [
                str(container.get(kind, {}).get("exec") or container.get(kind, {}).get("httpGet")) for kind in _PROBES
            ]
            if "None" in asked or asked[0] != asked[1] or asked[1] == asked[2]:
                yield f"{deployment['metadata']['name']} is not probed for start, life and readiness"


_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def there_is_time_to_leave(manifests: list[Manifest]) -> Iterator[str]:
    """The grace of a pod is longer than everything that its process may take, by half."""
    for deployment in of_kind(manifests, "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        needed = DRAIN_SECONDS
        for container in spec["containers"]:
            if container["name"] == "gateway":
                needed += load(environment(manifests, container)).gateway_grace_seconds
            needed += container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        if spec.get("terminationGracePeriodSeconds", 30) < needed * 1.5:
            yield f"{deployment['metadata']['name']} is killed before it has drained"


def selectors_match(manifests: list[Manifest]) -> Iterator[str]:
    """Each deployment selects its own pods alone; each budget and service selects somebody's."""
    deployments = of_kind(manifests, "Deployment")
    for one in deployments:
        taken = [p.name for p in pods(manifests) if selects(one["spec"]["selector"], p.labels)]
        if taken != [f"Deployment/{one['metadata']['name']}"]:
            yield f"{one['metadata']['name']} selects {taken}"
        budgets = [
            budget
            for budget in of_kind(manifests, "PodDisruptionBudget")
            if selects(budget["spec"]["selector"], Pod(one).labels)
        ]
        if len(budgets) != 1 or budgets[0]["spec"].get("maxUnavailable") != 1:
            yield f"{one['metadata']['name']} has no disruption budget, or several"
    for service in of_kind(manifests, "Service"):
        chosen = [pod for pod in pods(manifests) if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)]
        ports = {port["name"] for pod in chosen for one in pod.containers for port in one.get("ports", [])}
        if not chosen or not {port["targetPort"] for port in service["spec"]["ports"]} <= ports:
            yield f"Service {service['metadata']['name']} leads nowhere"


def traffic_is_allowed_by_name(manifests: list[Manifest]) -> Iterator[str]:
    """Nothing by default; each pod may resolve names and reach the database, and is reached at its own ports alone."""
    policies = of_kind(manifests, "NetworkPolicy")
    shut = [
        p
        for p in policies
        if p["spec"]["podSelector"] == {} and "ingress" not in p["spec"] and "egress" not in p["spec"]
    ]
    if not any(set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"} for policy in shut):
        yield "there is no policy that forbids everything"
    for pod in pods(manifests):
        mine = [policy["spec"] for policy in policies if selects(policy["spec"]["podSelector"], pod.labels)]
        out = {port["port"] for spec in mine for rule in spec.get("egress", []) for port in rule["ports"]}
        serving = {6379, 7687, 6333, 443} if pod.owner["kind"] == "Deployment" else set[int]()
        if not {53, 5432} | serving <= out:
            yield f"{pod.name} may not reach {sorted(({53, 5432} | serving) - out)}"
        served = {port["name"] for container in pod.containers for port in container.get("ports", [])}
        reached = {port["port"] for spec in mine for rule in spec.get("ingress", []) for port in rule["ports"]}
        if served != reached or not all(rule["from"] for spec in mine for rule in spec.get("ingress", [])):
            yield f"{pod.name} serves {sorted(served)} and is reached at {sorted(reached)}"
    blocks = [
        peer["ipBlock"]
        for policy in policies
        for rule in policy["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    if not blocks or not all({"169.254.0.0/16", "10.0.0.0/8"} <= {*b["except"]} or ":" in b["cidr"] for b in blocks):
        yield "private addresses may be reached"


def one_hand_steers(manifests: list[Manifest]) -> Iterator[str]:
    """No two autoscalers have one target, and each target exists."""
    targets = [
        found["spec"]["scaleTargetRef"]["name"]
        for found in of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject")
    ]
    names = {found["metadata"]["name"] for found in of_kind(manifests, "Deployment")}
    if len(set(targets)) != len(targets) or not set(targets) <= names:
        yield f"autoscalers steer {sorted(targets)}"


RULES: tuple[Callable[[list[Manifest]], Iterator[str]], ...] = (
    pods_are_confined,
    accounts_exist,
    resources_are_stated,
    settings_are_known,
    secrets_stay_out,
    commands_exist,
    every_server_is_probed,
    there_is_time_to_leave,
    selectors_match,
    traffic_is_allowed_by_name,
    one_hand_steers,
)


def breaches(manifests: list[Manifest]) -> list[str]:
    """Everything that is wrong with a set of manifests."""
    return [line for rule in RULES for line in rule(manifests)]
