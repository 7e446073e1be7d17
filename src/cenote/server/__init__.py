"""The HTTP server: one file for each API dialect, one frame around all of them.

A request goes `observe` (id, counters) -> router -> `endpoint` (body, validation, failures, disconnects) -> a dialect's
handler -> the engine.
"""
