"""The page around the hook of docs/guide/pages.md: what a bundler and a framework with server rendering would make."""

from __future__ import annotations

import base64
import hashlib

from tests.browser.npm_packages import Package

REACT = Package(
    "react",
    "19.3.1",
    "sha512-QNhWdt7nrgVWWQG58QuGsAR3jv3Hbe4mb4vz7w2csnHavciZJgda1CPNaldF6eVxv90ud3jUXpKlHL69gO38yw==",
)
REACT_DOM = Package(
    "react-dom",
    "19.3.1",
    "sha512-Y0bARz53lhEC1NMCASs0/j+faB/zqt3R8hpvg1e8+61ZVJ4UL0UdC4cBbXfZMcIuhrfgeILTLe+ZeBCavQPtKQ==",
)
SCHEDULER = Package(
    "scheduler",
    "0.28.0",
    "sha512-juorfCmIkIw8tT+p5BXSm6PJjQF/ycEYmKyzURCIt/RaZIhL+PulbQ9Yu2z1HdOJDdqDTlxA1+xKBmHXJsczAw==",
)

_PARTS = {
    "react": (REACT, "cjs/react.development.js"),
    "scheduler": (SCHEDULER, "cjs/scheduler.development.js"),
    "react-dom": (REACT_DOM, "cjs/react-dom.development.js"),
    "react-dom/client": (REACT_DOM, "cjs/react-dom-client.development.js"),
    "react-dom/server": (REACT_DOM, "cjs/react-dom-server-legacy.browser.development.js"),
}
"""The builds for development: only in these does `StrictMode` run each effect twice."""

NAMES = ("StrictMode", "createElement", "hydrateRoot", "renderToString", "useEffect", "useRef", "useState")

IMPORTS = '{"imports": {"react": "/react.js"}}'

_HASH = base64.b64encode(hashlib.sha256(IMPORTS.encode()).digest()).decode()

POLICY = f"default-src 'none'; script-src 'self' 'sha256-{_HASH}'; connect-src 'self'"
"""The hash is that of the import map, which a bundler would make unnecessary."""

PAGE = f"""<!doctype html><title>React</title>
<script type="importmap">{IMPORTS}</script>
<script type="module" src="/app.js"></script>
<div id="root" data-cursor="{{{{ cursor }}}}" data-ticket="{{{{ ticket }}}}"><ul>{{{{ items }}}}</ul></div>
"""

APP = """
import { StrictMode, createElement, hydrateRoot } from "react";
import { useMessages } from "/hook.js";

export function App({ cursor, first, ticket }) {
  const messages = useMessages("news", cursor, first, ticket);
  return createElement("ul", null, messages.map(text => createElement("li", { key: text }, text)));
}

if (globalThis.document) {
  const root = document.getElementById("root");
  const first = [...root.querySelectorAll("li")].map(item => item.textContent);
  const app = createElement(App, { ...root.dataset, first });
  hydrateRoot(root, createElement(StrictMode, null, app));
}
"""


def files(hook: str) -> dict[str, bytes]:
    """What the page loads; `hook`: the sample of the document."""
    return {"react.js": _library(), "app.js": APP.encode(), "hook.js": hook.encode()}


def _library() -> bytes:
    """All of React as one module, as a bundler would make it."""
    parts = [
        f'"{name}": function (module, exports) {{{package.file(path).decode()}}}'
        for name, (package, path) in _PARTS.items()
    ]
    names = ", ".join(NAMES)
    return f"""
const process = {{ env: {{ NODE_ENV: "development" }} }};
const loaded = {{}};
function require(name) {{
  if (!loaded[name]) {{
    loaded[name] = {{ exports: {{}} }};
    parts[name](loaded[name], loaded[name].exports);
  }}
  return loaded[name].exports;
}}
const parts = {{ {", ".join(parts)} }};
export const {{ {names} }} = {{ ...require("react"), ...require("react-dom/client"), ...require("react-dom/server") }};
""".encode()
