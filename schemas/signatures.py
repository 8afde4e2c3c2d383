"""Signatures of webhooks after the Standard Webhooks convention: to make them, and for receivers to verify them.

The module needs nothing but Python's own library, so a receiver may copy it. What is signed is `id.timestamp.body`, by
HMAC-SHA256. In a receiver, `body` being the bytes as they came:

    try:
        message_id = verify("whsec_…", request.headers, body)
    except ValueError:
        return 400
    if not seen_before(message_id):  # deliveries are repeated until one is answered with 2xx
        work_on(json.loads(body))
    return 204
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

PREFIX = "whsec_"
"""How the text of a secret begins."""

TOLERANCE = 300.0
"""Seconds by which the clocks of sender and receiver may differ; an older message may be a replay."""

_VERSION = "v1"


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message, with one signature for each secret: two while secrets are rotated."""
    signed = " ".join(_signature(secret, message_id, str(timestamp), body) for secret in secrets)
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": signed}


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float | None = None) -> str:
    """Return the id of a message that was signed with this secret, within five minutes of now (UNIX time).

    The id is the same in every repetition. The names of headers are taken in any case. The comparison takes the same time
    whatever is wrong with a signature.

    Raises:
        ValueError: a header is missing or no signature of it fits, the time is too far away, or the secret is none.
    """
    known = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, given = (known[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise ValueError(f"the header {error.args[0]} is missing") from None
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 15:
        raise ValueError("webhook-timestamp is no time")
    if abs((time.time() if now is None else now) - int(timestamp)) > TOLERANCE:
        raise ValueError("webhook-timestamp is too far from now")
    wanted = _signature(secret, message_id, timestamp, body).encode()
    fits = [hmac.compare_digest(wanted, one.encode("utf-8", "replace")) for one in given.split(" ")]
    if not any(fits):
        raise ValueError("webhook-signature does not fit")
    return message_id


def _signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    text = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key(secret), text, hashlib.sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("the secret is not base64") from None
