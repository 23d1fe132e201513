"""The browser client, as it is served and as it is published to npm; no Python. `docs/client.md` specifies it.

| file | what |
|---|---|
| `pushup.js` | the client: one ES module without dependencies |
| `pushup.d.ts` | its types, for TypeScript and for editors |
| `package.json` | the package for npm |
"""
