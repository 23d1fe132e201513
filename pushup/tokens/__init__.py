"""Signed tokens (RFC 7519): an application says in one who its user is, and what that user may poll and publish.

A token is text that anybody can write. So nothing in it is used before its signature is verified, but for the name of
its issuer and of its key, which only choose among the keys that the operator has set (RFC 8725 §3).

| file | what it does |
|---|---|
| `token_settings` | whose tokens are accepted, and where their keys are |
| `signing_keys` | the keys, each for one algorithm: secrets, PEM files, sets of keys in JSON (RFC 7517) |
| `key_urls` | sets of keys that an issuer publishes at a URL |
| `claims` | what a token says, as a grant |
| `verifier` | the text of a token -> a grant |
| `tokens` | the verifier of the present settings, and what fetches keys for it |
"""
