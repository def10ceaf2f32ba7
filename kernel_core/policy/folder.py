"""A policy as a folder: safetensors, tokenizer and config, as transformers reads them, and our manifest.

Without LoRA the folder is a plain transformers model, so that any other tool can open it. With LoRA it
holds the adapters, and pins the model that they belong to. Nothing in it is a pickle.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import torch
from huggingface_hub import constants, try_to_load_from_cache
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, Corrupt, NotFound, first_line
from kernel_core.policy.base import Base, base_in, check_base
from kernel_core.policy.tensor_stream import safetensors_parts
from kernel_core.store import MANIFEST, Manifest, Store

# Our own progress says what is going on; weights of a checkpoint load in a moment.
disable_progress_bar()

KIND = "policy"
WEIGHTS, ADAPTERS = "model.safetensors", "adapters.safetensors"
PEFT = "adapter_config.json"
ABOUT = "policy.json"
"""Version, and under LoRA the rank and the model that the adapters belong to."""

Parts = tuple[Any, Any, str, Base]
"""Model, tokenizer, version, and where the weights came from that LoRA adapters would belong to."""


def write_parts(
    store: Store, model: Any, tokenizer: Any, *, version: str, base: Base | None, dtype: torch.dtype | None
) -> dict[str, str]:
    """Write a policy's files into the store's root and give their checksums; sealing is the caller's.

    `dtype` casts the weights (a smaller file to ship).
    """
    files = write_surroundings(store, model, tokenizer, version=version, base=base, dtype=dtype)
    name, weights = weights_of(model, base)
    return files | {name: store.write_stream(name, safetensors_parts(weights, dtype))}


def write_surroundings(
    store: Store, model: Any, tokenizer: Any, *, version: str, base: Base | None, dtype: torch.dtype | None
) -> dict[str, str]:
    """`write_parts` without the weights: everything that is small."""
    files: dict[str, str] = {}
    about: dict[str, Any] = {"version": version}
    if base is None:
        files["config.json"] = store.write("config.json", _config_json(model, dtype))
        files |= _write_tokenizer(store, tokenizer)
    else:
        about |= {
            "base": base.name,
            "base_revision": base.revision,
            "base_weights": base.weights,
            "lora_rank": model.peft_config["default"].r,
        }
    files[ABOUT] = store.write_json(ABOUT, about)
    return files


def weights_of(model: Any, base: Base | None) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the name of the weights file and its tensors: under LoRA the adapters alone."""
    if base is None:
        return WEIGHTS, _unique_weights(model)
    return ADAPTERS, get_peft_model_state_dict(model)


def load_parts(source: Store | str, config: PolicyConfig) -> Parts:
    """Load a sealed policy folder, a transformers folder, or a model by its Hugging Face name.

    Raises `NotFound` for what is not there and `Corrupt` for what does not match its checksum or is
    no model.
    """
    store = source if isinstance(source, Store) else Store(source)
    if store.sealed():
        manifest, about = _about(store)
        if "tinker" in about:
            raise ConfigError(
                f"the weights of {store.root} are on a Tinker server; set policy.kind=tinker, or fetch them "
                "by `dojo runs export`"
            )
        if about.get("base") is not None:
            return _with_saved_adapters(store, about, config)
        with tempfile.TemporaryDirectory() as folder:
            local = local_copy(store, manifest.files, folder)
            model, tokenizer, _ = _pretrained(local, config)
            base, version = base_in(local, None if store.is_local else store.root), about["version"]
    elif store.exists(PEFT):
        return _with_peft_adapters(store, config)
    elif store.exists():
        if not store.exists("config.json"):
            raise NotFound(f"{store.root} holds no model: config.json is missing")
        model, tokenizer, version = _pretrained(store.root, config)
        base = base_in(store.root)
    elif isinstance(source, Store) or not _may_be_hub_name(source):
        raise NotFound(f"no model folder {store.root}")
    else:
        model, tokenizer, version = _pretrained(source, config)
        base = Base(name=source, revision=config.revision or getattr(model.config, "_commit_hash", None))
    if config.lora_rank is None:
        return model, tokenizer, version, base
    return _adapted(model, config.lora_rank), tokenizer, version, base


def _about(store: Store) -> tuple[Manifest, dict[str, Any]]:
    """Return the manifest and `meta` of a folder: a saved policy, or a folder that also holds a policy's
    files."""
    claimed = store.read_json(MANIFEST)
    manifest = store.open_sealed(claimed.get("kind", KIND) if isinstance(claimed, dict) else KIND)
    if ABOUT not in manifest.files:
        raise NotFound(f"{store.root} holds a {manifest.kind} without a policy; name a folder with {ABOUT}")
    about: dict[str, Any] = store.read_json(ABOUT)
    return manifest, about


def _with_saved_adapters(store: Store, about: dict[str, Any], config: PolicyConfig) -> Parts:
    # Folders of earlier versions name their base and pin nothing.
    recorded = Base(
        name=about["base"], revision=about.get("base_revision"), weights=about.get("base_weights")
    )
    revision = recorded.revision or config.revision
    bare = config.model_copy(update={"lora_rank": None, "revision": revision})
    model, tokenizer, _, actual = load_parts(recorded.name, bare)
    check_base(store.root, recorded, actual)
    model = _adapted(model, about["lora_rank"])
    put_adapters(store, model)
    return model, tokenizer, about["version"], actual


def _with_peft_adapters(store: Store, config: PolicyConfig) -> Parts:
    """Load the base model of a folder that PEFT wrote, with the adapters merged into its weights."""
    about = store.read_json(PEFT)
    bare = config.model_copy(update={"lora_rank": None, "revision": about.get("revision") or config.revision})
    model, tokenizer, _, base = load_parts(about["base_model_name_or_path"], bare)
    try:
        model = PeftModel.from_pretrained(model, store.root.removeprefix("file://")).merge_and_unload()
    except (OSError, ValueError, SafetensorError) as error:
        raise Corrupt(f"{store.root} holds no adapters for {base.name} ({first_line(error)})") from error
    if config.lora_rank is not None:
        raise ConfigError(
            f"{store.root} holds adapters, and no others are trained on top; leave policy.lora_rank out"
        )
    return model, tokenizer, store.root, base


def put_adapters(store: Store, model: Any) -> None:
    """Put the adapters of a folder in place of a model's own."""
    set_peft_model_state_dict(model, load_safetensors(store.read(ADAPTERS)))


def _adapted(model: Any, rank: int) -> Any:
    """Return the model with new LoRA adapters on every linear layer.

    One of the two factors starts at zero, so the seed changes no output; a fixed one makes runs repeatable.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lora = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", bias="none", task_type="CAUSAL_LM"
        )
        return get_peft_model(model, lora)


_DESCRIPTIONS = ("config.json", "policy.json", "adapter_config.json")
"""A folder of a model has one of them: as transformers, this package or PEFT leaves it."""


def require_model(name: str, revision: str | None) -> bool:
    """Return True if a model is on this machine; raise `NotFound` where it is not and the hub is
    unreachable."""
    if Path(name).is_dir():
        if not any((Path(name) / file).is_file() for file in _DESCRIPTIONS):
            raise NotFound(f"{name} holds no model: it has no {', '.join(_DESCRIPTIONS)}")
        return True
    if not _may_be_hub_name(name):
        raise NotFound(f"no model {name!r}: there is no such folder")
    if _is_cached(name, revision):
        return True
    if trouble := _hub_trouble():
        raise NotFound(
            f"no model {name!r}: it is neither a folder nor in the Hugging Face cache here, and the hub "
            f"cannot be reached ({trouble})"
        )
    return False


def _pretrained(name: str, config: PolicyConfig) -> tuple[Any, Any, str]:
    """Model, tokenizer and version from a folder or a Hugging Face name."""
    is_folder, is_local = Path(name).is_dir(), require_model(name, config.revision)
    where = {"revision": config.revision, "local_files_only": is_local}
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **where)
        model, loading = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=getattr(torch, config.dtype),
            use_safetensors=True,
            output_loading_info=True,
            **where,
        )
    except (OSError, ValueError, KeyError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        if is_folder:
            raise Corrupt(
                f"{name} holds no model that can be read ({reason}); fetch or make it again"
            ) from error
        raise NotFound(
            f"no model {name!r}: it is not a folder here, and the Hugging Face hub did not give it ({reason})"
        ) from error
    if missing := sorted(loading["missing_keys"]):
        # transformers warns and draws them at random; such a model learns, and never writes a kernel.
        raise Corrupt(
            f"{name} lacks {len(missing)} of its model's weights (first: {missing[0]}); fetch them, or set "
            "tie_word_embeddings in config.json if the output shares the input's embedding"
        )
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("policy.device = cuda, but torch sees no GPU; set policy.device=cpu")
    revision = config.revision or getattr(model.config, "_commit_hash", None)
    return model.to(config.device), tokenizer, f"{name}@{revision}" if revision else name


def _is_cached(name: str, revision: str | None) -> bool:
    """Return True if an earlier download left the model here; then the hub is not asked."""
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)


def _hub_trouble() -> str | None:
    """Return the reason why the hub is unreachable, at once: its own client would retry for most of a
    minute."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        httpx.head(constants.ENDPOINT, timeout=10.0)
    except httpx.HTTPError as error:
        return f"{constants.ENDPOINT}: {error}"
    return None


def _may_be_hub_name(name: str) -> bool:
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and "://" not in name


def local_copy(store: Store, names: Iterable[str], folder: str) -> str:
    """Return a path on this machine for libraries that read files; `folder` holds the files of a remote
    store."""
    if store.is_local:
        return store.root.removeprefix("file://")
    for name in names:
        (Path(folder) / name).write_bytes(store.read(name))
    return folder


def _unique_weights(model: Any) -> dict[str, torch.Tensor]:
    """Weights by name; those tied to an earlier one are left out, as transformers expects."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor
    return unique


def _config_json(model: Any, dtype: torch.dtype | None) -> bytes:
    values = json.loads(model.config.to_json_string(use_diff=True))
    values["architectures"] = [type(model).__name__]
    values["dtype"] = str(dtype or model.dtype).removeprefix("torch.")
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def _write_tokenizer(store: Store, tokenizer: Any) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {
            path.name: store.write(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())
        }
