"""`Principal`: the client that a request comes from; `Refused` and `Pending`: what else may become of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.refusals import Reason


@dataclass(frozen=True)
class Principal:
    """A client of the gateway. Two are the same client if their names are equal, whatever the profile has become."""

    name: str
    """For spans, metrics and the audit: the name of an entry in the clients file, or ``<issuer>/<subject>``. Metrics,
    which need few values, have only the issuer of the latter."""
    profile: Profile = field(default=EVERYTHING, compare=False)
    grant: object = field(default=None, compare=False, repr=False)
    """What its token was accepted by, for `Access.admits`: the token's hash in the clients file, or the settings of its
    issuer. None without a token."""
    expires: float | None = field(default=None, compare=False)
    """When an issuer's token expires, in seconds since the epoch."""


def metric_name(client: str | None) -> str:
    """The client's name in metrics. Clients of an issuer have the issuer's, because there may be any number of them."""
    return "" if client is None else client.partition("/")[0]


ANONYMOUS = Principal("anonymous", EVERYTHING)
"""The client of a gateway that knows no clients, which only this machine can reach."""


@dataclass(frozen=True)
class Refused:
    """A request that is answered without looking at its body."""

    status: int
    """HTTP status: 401, 403 or 503."""
    message: str
    """For the client; nothing of its token is in it."""
    www_authenticate: str | None = None
    """The value of that header; None for none."""
    retry_after: int | None = None
    """Seconds for the header Retry-After; None for none."""
    reason: Reason | None = None
    """None if the gateway could not judge the token: that is no trouble of the client's."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of the response that say how to go on."""
        found = []
        if self.www_authenticate is not None:
            found.append((b"www-authenticate", self.www_authenticate.encode("latin-1")))
        if self.retry_after is not None:
            found.append((b"retry-after", str(self.retry_after).encode()))
        return found


class Pending:
    """A request whose token cannot be judged before the issuer's keys have been fetched. For one event loop."""

    def __init__(self) -> None:
        self._answer: Principal | Refused | None = None
        self._then: Callable[[Principal | Refused], None] | None = None

    def then(self, callback: Callable[[Principal | Refused], None]) -> None:
        """Have `callback` called with the answer, on the loop: now, if it is known already. One callback at most."""
        if self._answer is not None:
            callback(self._answer)
        else:
            self._then = callback

    def settle(self, answer: Principal | Refused) -> None:
        """Tell the answer. For the part of `Access` that has fetched the keys."""
        self._answer = answer
        if self._then is not None:
            self._then(answer)
