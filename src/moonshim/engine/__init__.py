"""The engine: bytes and values in, bytes and values out, without any I/O.

Two corridors run through it: `request/` (what a client asks -> what its host accepts) and `response/` (what the host
answers -> what the client gets). The values both work on lie below them, the shells above.
"""
