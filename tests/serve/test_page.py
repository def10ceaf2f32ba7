"""The examples of docs/serve.md, run from the page's own text against a service that runs."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.pages import block, printed

PAGE = "docs/serve.md"
ADDRESS = "http://127.0.0.1:8900"
KEY = "key-of-ada-0123456789"


@pytest.mark.exhaustive
def test_a_first_call_from_python_and_by_curl_has_the_same_verdict(url: str) -> None:
    language, text = block(PAGE, "JudgeClient(")
    assert printed(language, text.replace(ADDRESS, url), {"DOJO_SERVE_KEY": KEY}).startswith("correct ")
    language, text = block(PAGE, "curl ")
    answer = json.loads(printed(language, text.replace(ADDRESS, url), {"DOJO_SERVE_KEY": KEY}))
    assert answer["evaluation"]["verdict"] == "correct"


@pytest.mark.exhaustive
def test_openenvs_client_holds_an_episode(url: str) -> None:
    pytest.importorskip("openenv.core", reason="openenv-core is not installed")
    language, text = block(PAGE, "GenericEnvClient(")
    here = url.removeprefix("http://")
    lines = printed(language, text.replace("127.0.0.1:8900", here), {"DOJO_SERVE_KEY": KEY}).splitlines()
    assert lines[-1].split()[2] in ("correct", "wrong", "not_compiled", "crashed", "malformed")
