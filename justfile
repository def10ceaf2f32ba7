# Short names for what `dojo` does, in the environment of README.md; `.venv/bin/just` lists them.

dojo := ".venv/bin/dojo"
root := env("DOJO_ROOT", "runs")

[private]
default:
    @just --list --unsorted

# The pictures of README.md, from real output
pictures:
    .venv/bin/python docs/pictures/make.py

# The files of docs/kernels: the generator's kernels with their verdicts
kernels:
    .venv/bin/python docs/kernels/make.py

# Screenshots of the Prefect UI, from a server that has the runs of docs/operations.md
screenshots URL="http://127.0.0.1:4200":
    .venv/bin/python docs/pictures/screenshots.py {{ URL }}

# Format, lint, types, layers and the fast tests
check: lint test

# Format, lint, types and layers
lint:
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy
    .venv/bin/lint-imports
    {{ dojo }} deploy --dry-run

# The fast tests, or those that ARGS choose
test *ARGS:
    .venv/bin/pytest -q -n 3 --dist loadfile --durations=10 -m "not slow and not gpu and not exhaustive" {{ ARGS }}

# What a change did to draws, presets, judge code and verdicts: just golden [draws presets judge verdicts] [--write]
golden *ARGS:
    .venv/bin/python tests/golden/golden.py {{ ARGS }}

# Train a preset of prefect.yaml: just train learn run=mine steps=20
train PRESET="learn" *SETTINGS:
    {{ dojo }} train {{ PRESET }} {{ SETTINGS }}

# Train with Kevin's learning rule
train-kevin *SETTINGS:
    {{ dojo }} train kevin {{ SETTINGS }}

# Train with three retrieved exemplars in each first prompt
train-raicl *SETTINGS:
    {{ dojo }} train learn run=raicl rollout.exemplars=3 {{ SETTINGS }}

# Run the command of a run again; it goes on from what is done
resume RUN:
    {{ dojo }} runs resume {{ RUN }} --root {{ root }}

# Ask a run to stop; it goes on later
stop RUN:
    {{ dojo }} runs stop {{ RUN }} --root {{ root }}

# One run: stages, figures, files
status RUN:
    {{ dojo }} runs show {{ RUN }} --root {{ root }}

# Every run and whether it is alive
list:
    {{ dojo }} runs list --root {{ root }}

# The log of a run, and what is added to it
logs RUN:
    {{ dojo }} runs logs {{ RUN }} --follow --root {{ root }}

# The newest figures of a run, every few seconds
watch-metrics RUN:
    {{ dojo }} runs watch {{ RUN }} --root {{ root }}

# Curves of every run, or of one
tensorboard RUN="" PORT="6006":
    {{ dojo }} runs tensorboard {{ RUN }} --port {{ PORT }} --root {{ root }}

# Evaluate a run's newest checkpoint on held-out problems
eval RUN *SETTINGS:
    {{ dojo }} evaluate run={{ RUN }}-eval checkpoint={{ RUN }} root={{ root }} {{ SETTINGS }}

# Build a corpus and its index
build-rag-index RUN="corpus" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# … of Triton kernels from the public corpora, which are downloaded
build-rag-index-triton RUN="corpus-triton" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} sources=[generator,kernelbook] {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# … of CUDA kernels from the public corpora, which are downloaded
build-rag-index-cuda RUN="corpus-cuda" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} sources=[sakana] {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# Server, workers and deployments on this machine
deploy-local PORT="4200":
    {{ dojo }} deploy --local --port {{ PORT }}

# Judge one kernel
judge PROBLEM KERNEL *OPTIONS:
    {{ dojo }} judge --problem {{ PROBLEM }} --kernel {{ KERNEL }} {{ OPTIONS }}

# The Prefect server and its UI
ui PORT="4200":
    {{ dojo }} ui --port {{ PORT }}
