"""The browser client, as it is served and as it can be bundled; no Python. `docs/guide/browser.md` describes it.

| file | what |
|---|---|
| `pushup.js` | the client: one ES module without dependencies |
| `pushup.d.ts` | its types, for TypeScript and for editors |
| `answers.js`, `answers.d.ts` | reads an answer while it is being written (`docs/guide/answers.md`) |
| `ai-sdk.js`, `ai-sdk.d.ts` | answers for `useChat` of the AI SDK |
| `ag-ui.js`, `ag-ui.d.ts` | answers for AG-UI |
| `package.json` | what it is, for bundlers; `make npm` adds its name and version |
"""
