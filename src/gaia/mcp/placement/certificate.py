"""The certificate of one start of a host: made by the program that starts it, and trusted by nothing else."""

from __future__ import annotations

import datetime as dt

_END = "-----END CERTIFICATE-----\n"
_DAYS = 3650
"""Longer than any host runs. Clocks may differ, so it begins a day ago."""


def make_certificate() -> str:
    """A new private key, after its self-signed certificate, as PEM. Needs ``cryptography``."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gaia-mcp host")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (certificate.public_bytes(serialization.Encoding.PEM) + private).decode()


def public_part(pem: str) -> str:
    """The certificate without the key."""
    return pem.partition(_END)[0] + _END
