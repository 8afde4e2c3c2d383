"""The gateway of one person on one machine: no keys, and therefore on a loopback address alone."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pipeline.errors import ConfigurationError, Refused
from pipeline.ingest.model_folders import model_folder
from pipeline.ingest.revisions import PREFIX
from schemas.settings import CorpusSettings
from worker.gateway.access import Principal, Scope
from worker.settings import WorkerSettings


class Everybody:
    """An `Authenticator` that admits everybody to the tenant `default`, with all scopes."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        return Principal("default", "local", frozenset(Scope))


def is_loopback(host: str) -> bool:
    """Whether a host, as a name or an address, is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen_address(settings: WorkerSettings) -> tuple[str, int]:
    """Return host and port to listen on. Raises ConfigurationError."""
    host, _, port = settings.gateway_listen.rpartition(":")
    if int(port) > 65_535:
        raise ConfigurationError("SAPWOOD_GATEWAY_LISTEN: a port is at most 65535.")
    return host.strip("[]"), int(port)


def needs_keys(settings: WorkerSettings) -> bool:
    """Whether callers need a key: by default everywhere but on a loopback address.

    Raises:
        ConfigurationError: no keys are asked for on an address that others can reach.
    """
    local = is_loopback(listen_address(settings)[0])
    if settings.gateway_auth == "none" and not local:
        raise ConfigurationError(
            "SAPWOOD_GATEWAY_AUTH: `none` lets everybody in, so SAPWOOD_GATEWAY_LISTEN must be a loopback address."
        )
    return settings.gateway_auth == "keys" or not local


def check_places(sources: list[str], settings: WorkerSettings, tenant: str) -> None:
    """Check that callers may have these places read; URLs have rules of their own. Blocking: for a thread.

    Without keys that is every place, as for the command line; with keys only what lies below the tenant's own folder, which
    has its name, in one of the roots of the settings; and no repository, whose files may name others for its objects.

    Raises:
        Refused: a path that is not below such a folder, or a repository on this machine.
    """
    if not needs_keys(settings):
        return
    plain = "/" not in tenant and tenant not in ("", ".", "..")  # such names came in before they were forbidden
    named = settings.gateway_source_roots.split(":") if plain else []
    roots = [(Path(root) / tenant).resolve() for root in named if root]
    for source in sources:
        if source.startswith(PREFIX) and not source.lower().startswith((f"{PREFIX}http://", f"{PREFIX}https://")):
            raise Refused(
                "path rule: a repository is fetched from a server; one on this machine is read without keys alone"
            )
        if "://" not in source:
            path = Path(source.removeprefix("triples:")).expanduser().resolve()
            if not any(path.is_relative_to(root) for root in roots):
                raise Refused(
                    "path rule: files are read from the tenant's own folder in SAPWOOD_GATEWAY_SOURCE_ROOTS alone"
                )


def check_model(corpus: CorpusSettings | None, settings: WorkerSettings) -> None:
    """Check that callers may have this model read: with keys only what lies below SAPWOOD_MODELS_ROOT.

    Raises:
        Refused, ConfigurationError: see `model_folder`.
    """
    if corpus is not None and corpus.embedding.provider == "onnx" and needs_keys(settings):
        model_folder(corpus.embedding.model, settings.models_root, anywhere=False)
