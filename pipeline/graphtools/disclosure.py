"""Proof that the types of a query were described before it is asked: a token that only whoever has the secret can make."""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection

from pipeline.errors import ConfigurationError
from pipeline.graphtools.refusal import invalid_argument

LEAST_SECRET = 16
"""Bytes of a secret at least."""

MISSING = "disclosureToken is required: call describeKnowledgeGraphTypes for all types of the query, and pass its token"
INVALID = (
    "disclosureToken is not valid for this source and its data as they are now: call describeKnowledgeGraphTypes again"
)


class Disclosure:
    """Makes and checks tokens. A token is `<labels>;<edge types>;<32 hex>` and bound to a source and a generation.

    Workers that serve the same agent must have the same secret.

    Raises:
        ConfigurationError: the secret is too short.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < LEAST_SECRET:
            raise ConfigurationError(f"The secret of disclosure tokens must have at least {LEAST_SECRET} bytes.")
        self._secret = secret

    def token(self, source: str, graph_id: str, labels: Collection[str], types: Collection[str]) -> str:
        """Return the token for types that are described now."""
        return self._token(source, graph_id, ",".join(labels), ",".join(types))

    def check(
        self, token: str | None, source: str, graph_id: str, labels: Collection[str], types: Collection[str]
    ) -> None:
        """Do nothing if the token covers these types.

        Raises:
            Refusal: INVALID_ARGUMENT that says what to do about the token.
        """
        if not token or not token.strip():
            raise invalid_argument(MISSING)
        known_labels, _, rest = token.strip().partition(";")
        known_types = rest.partition(";")[0]
        proper = self._token(source, graph_id, known_labels, known_types)
        if not hmac.compare_digest(*(one.encode(errors="surrogatepass") for one in (proper, token.strip()))):
            raise invalid_argument(INVALID)
        for used, known in ((labels, known_labels), (types, known_types)):
            for name in used:
                if name not in known.split(","):
                    raise invalid_argument(f"disclosureToken does not cover '{name}': describe all types in one call")

    def _token(self, source: str, graph_id: str, labels: str, types: str) -> str:
        message = json.dumps([source, graph_id, labels, types]).encode()
        return f"{labels};{types};{hmac.digest(self._secret, message, 'sha256').hex()[:32]}"
