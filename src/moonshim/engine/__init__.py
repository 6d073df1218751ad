"""The engine: bytes and values in, bytes and values out, without any I/O.

It has two paths: `request/` (client request -> host request) and `response/` (host reply -> client reply). Both use the
values below them and are used by the shells above.
"""
