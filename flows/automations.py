"""Automations of `deploy/automations.yaml`, checked before they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_core.config.yaml_lines import fault_at, load_yaml
from kernel_core.errors import ConfigError

AUTOMATIONS_YAML = Path(__file__).resolve().parents[1] / "deploy" / "automations.yaml"


def load_automations(file: Path, alert: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """Return the automations of the file as Prefect takes them; keys that Prefect would ignore are refused.

    `alert` is the type and id of the block that alerts go through; None for alerts that only leave their
    event. Raises `ConfigError` naming the line.
    """
    content = load_yaml(file)
    entries = content.get("automations") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f"{file} holds no list `automations`")
    return [_checked(file, number, entry, alert) for number, entry in enumerate(entries)]


def _checked(file: Path, number: int, entry: Any, alert: Mapping[str, str] | None) -> dict[str, Any]:
    from prefect.events.schemas.automations import AutomationCore

    here: tuple[str | int, ...] = ("automations", number)
    if not isinstance(entry, dict):
        raise fault_at(file, here, f"automation {number + 1} is not a mapping of settings")
    sent = entry | {"actions": [_action(action, alert) for action in entry.get("actions") or []]}
    try:
        understood = AutomationCore.model_validate(sent).model_dump(mode="json")
    except ValidationError as error:
        # Prefect lists for an action why it is none of the kinds of action; these errors are left out.
        first = next((e for e in error.errors() if e["loc"][-1] != "type"), error.errors()[0])
        key = ".".join(map(str, first["loc"]))
        raise fault_at(file, (*here, *first["loc"]), f"{key}: {first['msg'].lower()}") from error
    if (path := _ignored(sent, understood)) is not None:
        raise fault_at(file, (*here, *path), f"unknown key {'.'.join(map(str, path))}")
    return sent


def _action(action: dict[str, Any], alert: Mapping[str, str] | None) -> dict[str, Any]:
    """Return an action as Prefect has it: `alert` becomes a webhook's call or a notification."""
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


def _ignored(sent: Any, understood: Any, path: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """Return the path of the first key that the checked form lost."""
    if isinstance(sent, dict):
        if path and path[-1] in ("match", "match_related"):
            return None  # labels of resources: any key is valid
        items: Iterable[tuple[str | int, Any]] = sent.items()
        if lost := [key for key in sent if not isinstance(understood, dict) or key not in understood]:
            return (*path, lost[0])
    elif isinstance(sent, list) and isinstance(understood, list) and len(sent) == len(understood):
        items = enumerate(sent)
    else:
        return None
    below = (_ignored(value, understood[key], (*path, key)) for key, value in items)
    return next((lost_path for lost_path in below if lost_path is not None), None)
