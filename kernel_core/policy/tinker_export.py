"""Adapters from a Tinker server as a folder that PEFT opens, and `policy.kind=torch` with it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
from safetensors import safe_open

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, SourceUnavailable, first_line
from kernel_core.policy.tinker_model import require_client
from kernel_core.policy.tinker_policy import read_saved
from kernel_core.runs.resolve import locate_checkpoint
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

WEIGHTS, ABOUT = "adapter_model.safetensors", "adapter_config.json"


def export_adapters_of(run: Run, name: str, folder: Path) -> str:
    """Write the adapters of a run, or of its checkpoint `NAME@STEP`, into a folder; say so in a sentence.

    Raises as `export_adapters` does.
    """
    config = PolicyConfig.model_validate(run.command()["parameters"]["config"]["policy"])
    version, saved = read_saved(Store(locate_checkpoint(run.root, name)), config)
    export_adapters(config, saved.sampler, str(folder))
    return f"adapters of {version} for {config.model} are in {folder}; policy.model={folder} opens them"


def export_adapters(config: PolicyConfig, sampler: str, folder: str) -> None:
    """Write the adapters that a server keeps under the path `sampler` into a folder that is not there yet.

    Raises `ConfigError` for a folder that is there, `SourceUnavailable` when the server does not give them.
    """
    if Path(folder).exists():
        raise ConfigError(f"{folder} is there already; name a folder that is not")
    files = _unpacked(_archive(config, sampler))
    about: dict[str, Any] = json.loads(files[ABOUT])
    about |= {"base_model_name_or_path": config.model, "inference_mode": True, "task_type": "CAUSAL_LM"}
    Path(folder).mkdir(parents=True)
    (Path(folder) / WEIGHTS).write_bytes(files[WEIGHTS])
    if not about.get("target_modules"):  # SkyRL's server leaves them out, and PEFT needs them
        about["target_modules"] = _adapted_modules(Path(folder) / WEIGHTS)
    (Path(folder) / ABOUT).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")


def _archive(config: PolicyConfig, sampler: str) -> bytes:
    """Download the tar that the server packs. Tinker's own paths name the kind of weights, SkyRL's do not."""
    require_client()
    import tinker

    run, _, name = sampler.removeprefix("tinker://").partition("/")
    service = tinker.ServiceClient(base_url=config.endpoint)
    try:
        pending = service.create_rest_client().get_checkpoint_archive_url(run, name)
        answer = httpx.get(pending.result(timeout=config.timeout_s).url, timeout=config.timeout_s)
        answer.raise_for_status()
    except Exception as error:  # the client raises its own errors, httpx's, and bare ValueErrors
        where = config.endpoint or "Tinker's service"
        raise SourceUnavailable(
            f"{where} did not give the adapters {sampler}: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        service.holder.close()
    return answer.content


def _unpacked(packed: bytes) -> dict[str, bytes]:
    """PEFT's two files of an archive."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if member.isfile() else None
            if name in (WEIGHTS, ABOUT) and content is not None:
                files[name] = content.read()
    if missing := {WEIGHTS, ABOUT} - files.keys():
        raise SourceUnavailable(f"the archive of adapters lacks {', '.join(sorted(missing))}")
    return files


def _adapted_modules(weights: Path) -> list[str]:
    with safe_open(weights, "pt") as file:
        modules = {name.split(".lora_")[0].rpartition(".")[2] for name in file.keys()}  # noqa: SIM118
    return sorted(modules)
