"""Checks from outside whether a server keeps the protocol (docs/internals/protocol.md). Standard library only.

| file | what it holds |
|---|---|
| `wire` | one connection: bytes out, responses in |
| `adapter` | what a check may ask of any server: requests and their answers; the capabilities |
| `pushup`, `nchan` | the adapters |
| `options` | what the command line says about the server |
| `registry` | `must`, `should`: functions become named checks |
| `trial` | what a check is given: fresh channels, clients, and sentences for what it expects |
| `follower` | a subscriber that follows its channels along a chain of cursors |
| `checks` | the checks, a file for each part of the protocol |
| `runner` | runs checks in parallel within a time limit |
| `reports` | results as text and as JUnit XML |
"""
