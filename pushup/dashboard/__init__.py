"""The dashboard for operators, as it is served; no Python. `docs/operate/dashboard.md` describes it.

| file | what |
|---|---|
| `dashboard.html` | the page |
| `dashboard.js` | what it does: one ES module, over `pushup.js` |
| `dashboard.css` | how it looks, in light and dark, on a desk and on a phone |
"""
