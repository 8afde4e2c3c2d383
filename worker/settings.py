"""The process's settings: environment variables `SAPWOOD_*` in, one frozen value out. Durations are in seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from pipeline.addresses import Network, networks
from pipeline.errors import ConfigurationError

PREFIX = "SAPWOOD_"

_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)$")
"""How the variables end that Kubernetes sets for services."""


def _scheme(*allowed: str) -> AfterValidator:
    def check(url: SecretStr) -> SecretStr:
        if url.get_secret_value().partition("://")[0] not in allowed:
            raise ValueError(f"must start with {' or '.join(f'{scheme}://' for scheme in allowed)}")
        return url

    return AfterValidator(check)


class WorkerSettings(BaseModel):
    """What a process needs to know before it starts. Field `x` is read from `SAPWOOD_X`.

    A server without a URL is the embedded one of `home`. URLs and keys are secrets: no `repr` or error shows them.
    Neo4j and Qdrant are used by the corpora that ask for them; `qdrant_url` is `http(s)://…`, or a folder for the client's
    own local mode, which one process alone can use. A worker with 0 `index_jobs` takes queries only, one with 0
    `query_jobs` none.

    `gateway_listen` is `host:port` in one variable: Kubernetes sets `SAPWOOD_GATEWAY_PORT` for a service of that name.
    `gateway_auth` is by default `none` on a loopback address and `keys` elsewhere. `gateway_source_roots` are folders,
    separated by colons, with one folder for each tenant, below which its keys may name files as sources. The limits of
    the gateway are those of one tenant in one process, but for `gateway_open_runs`, which counts the tenant's runs that have
    not ended, and `gateway_failures_per_second`: the attempts without a valid key from one address, ten seconds' worth at once.

    `webhooks_private_networks` are networks in CIDR form, separated by commas, to whose addresses and any of whose ports
    webhooks may go beside the public internet, e.g. those of a cluster. URLs of documents may never.

    `tokenizer_file` is the `tokenizer.json` of the model that answers (extra `tokens`): the windows of contexts are then counted
    in its tokens. Without it they are counted by the tokenizer that is installed as an entry point of the group
    `sapwood.tokenizer`, else by an estimate that rather counts too many.

    `models_root` is the folder below which the models lie that `embedding.model` names for the provider `onnx`, by a path from
    there or an absolute one; the same on every worker. Without it such a model may lie anywhere, by its absolute path, where
    the database is the embedded one and no keys are asked for; otherwise that provider is refused.

    `git_cache_bytes` is what the repositories may come to that were fetched into `home`: beyond it those go that were not used
    for longest and that no run may read. One that is no corpus's source any more goes within minutes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
    database_url: Annotated[SecretStr, _scheme("postgresql", "postgres")] | None = None
    redis_url: Annotated[SecretStr, _scheme("redis", "rediss", "unix")] | None = None

    graph_neo4j_uri: Annotated[str, Field(pattern=r"^(bolt|neo4j)(\+s|\+ssc)?://")] | None = None
    graph_neo4j_user: str = "neo4j"
    graph_neo4j_password: SecretStr | None = None
    graph_neo4j_database: str = "neo4j"
    graph_neo4j_database_mode: Literal["shared", "per_corpus"] = "shared"
    graph_neo4j_database_prefix: str = "sapwood-"
    graph_neo4j_auto_create: bool = True
    graph_neo4j_pool_size: int = Field(default=20, ge=1, le=500)

    qdrant_url: str | None = None
    qdrant_api_key: SecretStr | None = None

    openai_base_url: Annotated[str, Field(pattern="^https?://")] | None = None
    openai_api_key: SecretStr | None = None
    openai_model: str = ""
    openai_embedding_model: str = ""
    models_root: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] | None = None
    tokenizer_file: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] | None = None
    model_concurrency: int = Field(default=16, ge=1, le=1000)

    git_cache_bytes: int = Field(default=10 << 30, ge=0)

    database_pool_size: int = Field(default=10, ge=2, le=500)
    index_jobs: int = Field(default=2, ge=0, le=1000)
    query_jobs: int = Field(default=16, ge=0, le=1000)
    lease_seconds: float = Field(default=2.0, ge=0.2, le=300)
    max_crashes: int = Field(default=3, ge=1, le=100)

    gateway_listen: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):\d{1,5}$")] = "127.0.0.1:8321"
    gateway_auth: Literal["keys", "none"] | None = None
    gateway_source_roots: str = ""
    gateway_max_body_bytes: int = Field(default=1 << 20, ge=1024, le=1 << 30)
    gateway_requests_per_second: float = Field(default=50.0, gt=0, le=100_000)
    gateway_direct_queries: int = Field(default=32, ge=1, le=10_000)
    gateway_streams: int = Field(default=200, ge=1, le=100_000)
    gateway_open_runs: int = Field(default=1000, ge=1, le=1_000_000)
    gateway_failures_per_second: float = Field(default=2.0, gt=0, le=100_000)
    gateway_heartbeat_seconds: float = Field(default=15.0, ge=0.05, le=300)
    gateway_send_seconds: float = Field(default=30.0, ge=0.05, le=3600)
    gateway_grace_seconds: float = Field(default=10.0, ge=0, le=3600)

    webhooks_private_networks: Annotated[
        tuple[Network, ...], BeforeValidator(lambda given: networks(given) if isinstance(given, str) else given)
    ] = ()

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65535)

    health_file: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] | None = None

    @field_validator("query_jobs")
    @classmethod
    def _some_work(cls, jobs: int, info: ValidationInfo) -> int:
        if not jobs and not info.data.get("index_jobs"):
            raise ValueError("is 0, and so is SAPWOOD_INDEX_JOBS: nothing would be worked on")
        return jobs

    @property
    def pulse_file(self) -> Path:
        """Where a worker shows that it lives; two workers of one home need a `health_file` each."""
        return self.health_file or self.home / "run" / "worker.json"

    @property
    def repositories(self) -> Path:
        """Where fetched repositories lie."""
        return self.home / "git"

    @property
    def embedded(self) -> bool:
        """Whether at least one server is the embedded one."""
        return self.database_url is None or self.redis_url is None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret that is set, for the redaction of logs."""
        found = (
            self.database_url,
            self.redis_url,
            self.openai_api_key,
            self.graph_neo4j_password,
            self.qdrant_api_key,
        )
        return tuple(secret.get_secret_value() for secret in found if secret is not None)


def load(environ: Mapping[str, str] = os.environ) -> WorkerSettings:
    """Return the settings that the environment gives; an empty variable counts as not set, and so does a port that is a
    URL: Kubernetes sets `SAPWOOD_METRICS_PORT=tcp://…` for a service of that name.

    Raises:
        ConfigurationError: a value is not valid; the message names the variable and never holds the value.
    """
    given = {field: environ.get(PREFIX + field.upper(), "") for field in WorkerSettings.model_fields}
    links = {field for field, text in given.items() if field.endswith("_port") and "://" in text}
    set_ = {field: text for field, text in given.items() if text and field not in links}
    values = {"home": str(_default_home(environ))} | set_
    try:
        return WorkerSettings.model_validate(values)
    except ValidationError as error:
        lines = [f"{PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg']}" for problem in error.errors()]
        raise ConfigurationError("; ".join(lines)) from None


def misspelt(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are almost a setting, each with the one that was meant.

    Others of our prefix are left alone: Kubernetes sets `SAPWOOD_PORT` and the like for a service of that name.
    """
    known = [PREFIX + field.upper() for field in WorkerSettings.model_fields]
    odd = sorted(name for name in environ if name.startswith(PREFIX) and name not in known and not _LINK.search(name))
    close = {name: get_close_matches(name, known, n=1, cutoff=0.85) for name in odd}
    return {name: match[0] for name, match in close.items() if match}


def _default_home(environ: Mapping[str, str]) -> Path:
    """Return the XDG place for data; a relative `XDG_DATA_HOME` is ignored, as its specification demands."""
    base = Path(environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path("~/.local/share")) / "sapwood"
