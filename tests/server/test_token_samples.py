"""The samples of docs/guide/tokens.md: what a reader copies works."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushup.settings.channel_policies import ChannelTable
from pushup.tokens.token_settings import TokenIssuer
from tests.server.document_samples import flags, sample
from tests.server.server_process import running

PAGE = "docs/guide/tokens.md"
SERVE = sample(PAGE, "pushup serve --set token_issuer")
SIGN = sample(PAGE, "import time")
POLL = sample(PAGE, "GET /v1/poll?channel=user:7")
ISSUERS = sample(PAGE, "[[token_issuers]]")
REVOKE = sample(PAGE, "curl http://127.0.0.1:8080/v1/revoke")
REVOKED = sample(PAGE, '{"sub": "7"')
RULES = sample(PAGE, "[[channels]]")

KEY = "a-publish-key-of-the-application"


@pytest.fixture
def token_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The function of the page, beside the files that it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token_secrets").write_text("0123456789abcdef" * 4 + "\n")
    (tmp_path / "publish_keys").write_text(KEY)
    for name in ("token_secrets", "publish_keys"):
        (tmp_path / name).chmod(0o600)
    names: dict[str, Any] = {}
    exec(SIGN, names)
    return names["token_for"]  # type: ignore[no-any-return]


def test_a_token_and_its_revocation(tmp_path: Path, token_for: Callable[[str], str]) -> None:
    """The server, the token, the poll and the curl line of the page; and the rules by channel."""
    (tmp_path / "pushup.toml").write_text(RULES)
    line = SERVE.replace("\\\n", " ").replace("_file=", f"_file={tmp_path}/")
    with running(tmp_path / "log", (*flags(line), "--config", str(tmp_path / "pushup.toml"))) as server:
        with server.caller() as caller:
            method, target = POLL.splitlines()[0].split()
            head = {"Authorization": f"Bearer {token_for('7')}"}
            assert caller.call(method, f"{target}&timeout=0", headers=head).status == 200
            assert caller.call(method, "/v1/poll?channel=user:8&timeout=0", headers=head).status == 403
            assert caller.call(method, f"{target}&timeout=0").status == 401
            assert caller.call(method, "/v1/poll?channel=public:news&timeout=0").status == 200
            for channel, status in (("typing:7", 201), ("news", 403), ("order:7", 403)):
                body = {"channels": [channel], "data": 1}
                assert caller.call("POST", "/v1/messages", body, headers=head).status == status, channel
            command = REVOKE.replace("http://127.0.0.1:8080", server.url)
            environment = {**os.environ, "KEY": KEY}
            shell = ["sh", "-c", f"{command.strip()} -s"]
            said = subprocess.run(shell, env=environment, capture_output=True, check=True)
            assert json.loads(said.stdout).keys() == json.loads(REVOKED).keys()
            refused = caller.call(method, f"{target}&timeout=0", headers=head)
            assert (refused.status, refused.value["type"]) == (401, "urn:pushup:revoked")
        assert server.trouble() == []


def test_the_tables() -> None:
    """They are of the form that the settings have."""
    msgspec.convert(tomllib.loads(ISSUERS)["token_issuers"], tuple[TokenIssuer, ...])
    assert len(msgspec.convert(tomllib.loads(RULES)["channels"], tuple[ChannelTable, ...])) == 2
