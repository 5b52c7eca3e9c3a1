"""An HTTP/1.1 client whose exchanges run on a caller's thread or, many at once, on the one I/O thread of the process.

It knows nothing of MCP. `connection` makes requests; `waits` says how an exchange waits, `io_thread` drives many.
httptools (llhttp) parses responses; sockets, TLS, proxies and limits are here. Needs the extra ``gaia-mcp[http]``.
`response_limits` is for httpx2 and does not need httptools, so this package imports nothing.
"""
