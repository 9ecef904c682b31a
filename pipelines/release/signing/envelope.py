"""Wrap in-toto statements in DSSE envelopes: what is signed, and by which key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paritygate.files import json_bytes, json_of
from paritygate.pipelines.release.signing.keys import SigningKey, VerifyingKey

_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"


def statement(kind: str, subjects: list[tuple[str, str]], predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return an in-toto statement; `subjects` has names with their digests."""
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}} for name, digest in subjects],
        "predicateType": kind,
        "predicate": predicate,
    }


def signed(content: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """Return the envelope of a statement as JSON data."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(json_bytes(content), _PAYLOAD, {})
    envelope.sign(key.signer)
    data: dict[str, Any] = envelope.to_dict()
    return data


def opened(data: Any, kind: str, key: VerifyingKey) -> dict[str, Any]:  # noqa: ANN401 - of a file that may be forged
    """Return the statement in an envelope, once the signature of the key is checked.

    Raises:
        ValueError: It is no such envelope, or the key did not sign it.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        # The library changes what it gets.
        envelope = Envelope.from_dict(json.loads(json.dumps(data)))
        envelope.verify([key.key], 1)
        content: dict[str, Any] = json_of(envelope.payload.decode())
        is_statement = (envelope.payload_type, content["_type"], content["predicateType"]) == (
            _PAYLOAD,
            _STATEMENT,
            kind,
        )
    except VerificationError as err:
        raise ValueError("the key did not sign this statement") from err
    except (LookupError, TypeError, AttributeError) as err:
        raise ValueError(f"{type(err).__name__}: {err}") from err
    if not is_statement:
        raise ValueError("the signed statement is of another kind")
    return content
