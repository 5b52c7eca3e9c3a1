"""Texts for property tests: of pieces that are secrets, look like some, or are hard to find in JSON."""

from hypothesis import strategies as st

SECRETS = ("hunter2-hunter2", 'with"quotes', "with\\backslashes", "of two\nlong lines", "caf\u00e9-noir", "aaaa")

PIECES = st.sampled_from(
    [
        *SECRETS,
        *("token", "SECRET", "passw", "Passphrase", "api", "key", "_", "auth", "or", "credential", "cookie", "session"),
        *(
            "access",
            "private",
            "bearer ",
            "Bearer abcdefgh12345678",
            "eyJabcdefgh.abcdefgh.x",
            "sk-abcdefghijklmnopqrst",
        ),
        *("ghp_abcdefghijklmnopqrstuvw", "xoxb-1234567890ab", "AKIAABCDEFGHIJKLMNOP", "AIza" + "a" * 32),
        *("-----BEGIN PRIVATE KEY-----", "https://ada:pass@example.com", "://", "@", "=", ": ", "=hunter", "'", '"'),
        *(
            "\\",
            "\n",
            "\t",
            "\r",
            "\b",
            "\x00",
            "\x7f",
            "/",
            "e+",
            "s\u0131",
            "\u017f",
            "\u0130",
            "\u212a",
            "\u00df",
            "through",
        ),
        *("x" * 60, "QUJD" * 16, "a,b:c", "\u6771" * 30),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=4).map("".join), st.text(max_size=12))
