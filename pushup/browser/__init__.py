"""The browser client, as it is served and as it can be bundled; no Python. `docs/guide/browser.md` describes it.

| file | what |
|---|---|
| `pushup.js` | the client: one ES module without dependencies |
| `pushup.d.ts` | its types, for TypeScript and for editors |
| `package.json` | what it is, for bundlers; `make npm` adds its name and version |
"""
