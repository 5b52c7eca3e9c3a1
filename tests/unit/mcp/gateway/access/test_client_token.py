"""Tokens of clients, and what is kept of them."""

from gaia.mcp.gateway.access.clients_file import hash_of, is_hash, new_token


def test_tokens_are_long_and_different() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith("gaia_") and len(token) == 48 for token in tokens)


def test_what_is_kept_is_a_hash_of_the_text_or_its_bytes() -> None:
    assert hash_of("x") == hash_of(b"x") == "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert is_hash(hash_of("x"))
    assert not is_hash(new_token())
    assert not is_hash(hash_of("x").upper())
