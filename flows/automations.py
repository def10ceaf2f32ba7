"""`deploy/automations.yaml`: what the server does by itself, checked before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_core.config.yaml_lines import line_of, load_yaml
from kernel_core.errors import ConfigError

AUTOMATIONS_YAML = Path(__file__).resolve().parents[1] / "deploy" / "automations.yaml"
ALERT_BLOCK = "DOJO_ALERT_BLOCK"


def load_automations(file: Path, alert: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """The automations of the file as Prefect takes them; keys that Prefect would ignore are refused.

    `alert` is the type and id of the block that alerts go through; None for alerts that only leave their
    event. Raises `ConfigError` naming the line.
    """
    content = load_yaml(file)
    entries = content.get("automations") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f"{file} holds no list `automations`")
    return [_checked(file, number, entry, alert) for number, entry in enumerate(entries)]


def alert_block(words: str | None) -> tuple[str, str] | None:
    """Type and name of the block that `DOJO_ALERT_BLOCK` names."""
    if not words:
        return None
    kind, separator, name = words.partition("/")
    if not (kind and separator and name):
        raise ConfigError(f"{ALERT_BLOCK}={words!r} is not of the form TYPE/NAME, as webhook/ops")
    return kind, name


def _checked(file: Path, number: int, entry: Any, alert: Mapping[str, str] | None) -> dict[str, Any]:
    from prefect.events.schemas.automations import AutomationCore

    if not isinstance(entry, dict):
        raise ConfigError(f"{file}: automation {number + 1} is not a mapping of settings")
    wanted = entry | {"actions": [_action(action, alert) for action in entry.get("actions") or []]}
    try:
        understood = AutomationCore.model_validate(wanted).model_dump(mode="json")
    except ValidationError as error:
        # Prefect says of an action how it fails to be each kind of action; these errors are left out.
        first = next((e for e in error.errors() if e["loc"][-1] != "type"), error.errors()[0])
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{_where(file, number, first['loc'])}: {key}: {first['msg'].lower()}") from error
    if (path := _ignored(wanted, understood)) is not None:
        raise ConfigError(f"{_where(file, number, path)}: unknown key {'.'.join(map(str, path))}")
    return wanted


def _action(action: dict[str, Any], alert: Mapping[str, str] | None) -> dict[str, Any]:
    """An action as Prefect has it: `alert` becomes a webhook's call or a notification."""
    if action.get("type") != "alert":
        return action
    if unknown := action.keys() - {"type", "subject", "body"}:
        raise ConfigError(f"an alert has a subject and a body, but no {min(unknown)}")
    if alert is None:
        return {"type": "do-nothing"}
    words = {"subject": action["subject"], "body": action["body"]}
    if alert["type"] == "webhook":
        payload = f"{words['subject']}\n{words['body']}"
        return {"type": "call-webhook", "block_document_id": alert["id"], "payload": payload}
    return {"type": "send-notification", "block_document_id": alert["id"], **words}


def _ignored(wanted: Any, understood: Any, path: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """The path of the first key that the checked form lost."""
    if isinstance(wanted, dict):
        if path and path[-1] in ("match", "match_related"):
            return None  # labels of resources: any key is one
        for key, value in wanted.items():
            if not isinstance(understood, dict) or key not in understood:
                return (*path, key)
            if (found := _ignored(value, understood[key], (*path, key))) is not None:
                return found
    if isinstance(wanted, list) and isinstance(understood, list) and len(wanted) == len(understood):
        for number, (one, other) in enumerate(zip(wanted, understood, strict=True)):
            if (found := _ignored(one, other, (*path, number))) is not None:
                return found
    return None


def _where(file: Path, number: int, path: tuple[str | int, ...]) -> str:
    line = line_of(file, ("automations", number, *path))
    return f"{file}, line {line}" if line is not None else str(file)
