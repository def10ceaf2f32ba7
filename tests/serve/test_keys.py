"""Keys of clients, from a file and from a header."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kernel_core.errors import ConfigError, NotFound
from kernel_core.serve.keys import Keys, read_keys

ADA, BEA = "a" * 16, "b" * 20


def test_a_file_names_clients_and_a_header_finds_them(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# trainers\nada {ADA}\n\nbea {BEA}  # until May\n")
    keys = read_keys(file)
    assert keys.client_of(f"Bearer {ADA}") == "ada"
    assert keys.client_of(f"bearer  {BEA}") == "bea"
    assert keys.client_of(f"Bearer {ADA}x") is None


def test_a_url_may_carry_the_key_as_a_password() -> None:
    encoded = base64.b64encode(f"any:{ADA}".encode()).decode()
    assert Keys({"ada": ADA}).client_of(f"Basic {encoded}") == "ada"


@pytest.mark.parametrize(
    "text", ["ada\n", f"ada {ADA}\nada {BEA}\n", f"ada {ADA} more\n", "# none\n", "ada short\n"]
)
def test_a_file_that_is_not_of_that_form_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_keys(file)


def test_two_clients_cannot_share_a_key() -> None:
    with pytest.raises(ConfigError, match="same key"):
        Keys({"ada": ADA, "bea": ADA})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        read_keys(tmp_path / "nowhere")


def test_one_client_among_several_gets_half_the_room() -> None:
    assert Keys({"ada": ADA}).share_of(5) == 5
    assert Keys({"ada": ADA, "bea": BEA}).share_of(5) == 3
