"""Tests of signed tokens, as somebody who wants to be what no token says.

Tokens are written by `evil_tokens`, which shares nothing with the product but the package cryptography.
"""
