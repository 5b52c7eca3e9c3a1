"""Access tokens of an issuer: JWTs (RFC 9068), verified by PyJWT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jwt

from gaia.mcp.gateway.access.issuer_settings import IssuerSettings

LEEWAY_SECONDS = 30.0
"""How far the clocks of issuer and gateway may differ."""

_TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
"""What the header ``typ`` may be: other types, such as logout tokens, are no access tokens."""

_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of key (``kty``) that algorithms need, by their first letters."""


class BadToken(Exception):
    """The token is not to be trusted; the message says why, and shows nothing of the token."""


def claimed_issuer(token: str) -> str | None:
    """The issuer that the token names. Nothing is verified: it says only whose keys are to be tried."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, RecursionError):
        return None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else None


def signing_key_id(token: str, settings: IssuerSettings) -> str | None:
    """The ``kid`` of the key that the token names as its own. Raises `BadToken` for other headers than allowed."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, RecursionError):
        raise BadToken("it is no JWT") from None
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise BadToken("it is no access token, by its type")
    if header.get("alg") not in settings.algorithms:
        raise BadToken("its algorithm is not one of those that are allowed")
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def verified_claims(
    token: str, settings: IssuerSettings, keys: Iterable[Mapping[str, Any]], audiences: list[str]
) -> dict[str, Any]:
    """The claims of a token of this issuer for one of `audiences`. Raises `BadToken`."""
    algorithm = jwt.get_unverified_header(token)["alg"]
    problem = "it is signed with another key"
    for key in keys:
        if key.get("kty") != _KEY_TYPES[algorithm[:2]] or key.get("use", "sig") != "sig":
            continue
        if key.get("alg", algorithm) != algorithm:
            continue
        try:
            claims = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm),
                algorithms=[algorithm],
                issuer=settings.issuer,
                audience=audiences,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "aud", "exp"]},
            )
            # Times may be numbers that no clock has.
            float(claims["exp"])
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWKError, jwt.InvalidKeyError):
            problem = "its key cannot be used"
        except jwt.ExpiredSignatureError:
            raise BadToken("it has expired") from None
        except jwt.InvalidAudienceError:
            raise BadToken("it was issued for another resource") from None
        except (jwt.InvalidTokenError, OverflowError) as error:
            raise BadToken(f"it is not valid: {type(error).__name__}") from None
        else:
            return claims
    raise BadToken(problem)
