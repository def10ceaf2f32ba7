#!/usr/bin/env bash
# Run a pipeline preset through a Prefect server and a work pool on a host without a network.
#
#   WHEELS=FOLDER MODEL=FOLDER KERNELBENCH_ROOT=FOLDER deploy/run_offline.sh OUT [SECONDS] [key=value ...]
#
# The first call starts the work in the background; each call waits up to SECONDS (540) for its end, then
# packs logs, states and artifacts into OUT. Call it again to go on waiting. It exits with 0 when the flow run
# is Completed, with 1 when it ended otherwise, and with 75 while it runs. `pip download` makes the folder of
# wheels (deploy/README.md).
#
#   OUT/status.txt      one line a step, the last one is what runs now
#   OUT/states.json     flow runs and task runs with state, message and times
#   OUT/artifacts.json  every artifact of the server
#   OUT/logs.tar.gz     install, server, deploy, worker, Prefect's log and the run's own
#   OUT/run.tar.gz.NN   the run's folder without weights and indexes, in pieces of 15 MiB
set -uo pipefail

OUT=$(mkdir -p "$1" && cd "$1" && pwd); shift
SECONDS_TO_WAIT=540
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then SECONDS_TO_WAIT=$1; shift; fi

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPOSITORY=${DOJO_REPOSITORY:-$REPOSITORY}
WORK=${WORK:-/tmp/dojo-offline}
WHEELS=${WHEELS:-/tmp/wheels}
SITE=${SITE:-/tmp/site}
PYTHON=${PYTHON:-python3}
POOL=${POOL:-cuda}
PRESET=${PRESET:-coder-quick}
PORT=${PORT:-4200}
export MODEL=${MODEL:-/tmp/model} KERNELBENCH_ROOT=${KERNELBENCH_ROOT:-/tmp/kb}
export DOJO_ROOT=${DOJO_ROOT:-$WORK/runs}
export PREFECT_HOME=$WORK/prefect PREFECT_API_URL=http://127.0.0.1:$PORT/api PREFECT_UI_ENABLED=0
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
export PREFECT_WORKER_QUERY_SECONDS=2
export PYTHONPATH=$REPOSITORY:$SITE${PYTHONPATH:+:$PYTHONPATH}
LOGS=$WORK/logs
mkdir -p "$LOGS" "$PREFECT_HOME" "$DOJO_ROOT"

say() { echo "$(date +%H:%M:%S) $*" >>"$WORK/status.txt"; }

# Stop with the step's name and the end of its log in the status.
need() {
  local step=$1; shift
  say "$step"
  "$@" >>"$LOGS/$step.log" 2>&1 && return
  say "FAILED: $step, exit code $?"
  tail -n 20 "$LOGS/$step.log" | sed 's/^/    /' >>"$WORK/status.txt"
  exit 1
}

install() {
  [[ -e $SITE/.installed ]] && return
  mapfile -t files < <(find -L "$WHEELS" -name '*.whl')
  ((${#files[@]})) || { echo "no wheels under WHEELS=$WHEELS"; return 1; }
  "$PYTHON" -m pip install --no-index --no-deps --quiet --target "$SITE" "${files[@]}" && touch "$SITE/.installed"
}

# Name each module that is missing at once, and the versions that run.
check() {
  "$PYTHON" - <<'PY'
import importlib, importlib.metadata, os, platform, sys
names = "torch triton transformers peft tokenizers pandas pyarrow faiss datasketch bm25s prefect pydantic " \
    "pydantic_settings cyclopts pynvml matplotlib tensorboard httpx yaml flows.pipeline flows.commands.deploy"
failed = []
for name in names.split():
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {error}")
print(sys.version, platform.platform())
print(*sorted(f"{d.name}=={d.version}" for d in importlib.metadata.distributions()), sep="\n")
for folder in (os.environ["MODEL"], os.environ["KERNELBENCH_ROOT"]):
    if not os.path.isdir(folder):
        failed.append(f"no folder {folder}")
print(*failed, sep="\n")
sys.exit(bool(failed))
PY
}

healthy() {
  for _ in $(seq 180); do
    kill -0 "$SERVER" 2>/dev/null || { echo "the server ended:"; tail -n 5 "$LOGS/server.log"; return 1; }
    "$PYTHON" -c "import sys, httpx; httpx.get('$PREFECT_API_URL/health', trust_env=False).raise_for_status()" \
      2>/dev/null && return
    sleep 1
  done
  echo "the server at $PREFECT_API_URL did not answer in 180 tries"; return 1
}

start_flow_run() {
  "$PYTHON" - "$PRESET" "$WORK/flow_run" "$@" <<'PY'
import os, sys
from flows.server import prepare_environment
prepare_environment()
from flows.presets import chosen_settings
from prefect.deployments import run_deployment
preset, file, *words = sys.argv[1:]
chosen = chosen_settings("pipeline", None, [f"policy.model={os.environ['MODEL']}", *words], {})
flow_run = run_deployment(f"pipeline/{preset}", parameters=chosen, timeout=0)
open(file, "w").write(str(flow_run.id))
print(flow_run.id, flow_run.name, chosen)
PY
}

# Write states and artifacts, and print the state of the flow run.
ask_server() {
  "$PYTHON" - "$WORK" <<'PY'
import json, os, sys
from pathlib import Path
import httpx
work = Path(sys.argv[1])
client = httpx.Client(base_url=os.environ["PREFECT_API_URL"], trust_env=False, timeout=30)

def every(kind):
    rows = []
    while True:
        page = client.post(f"/{kind}/filter", json={"limit": 200, "offset": len(rows)}).raise_for_status().json()
        rows += page
        if len(page) < 200:
            return rows

keys = ("id", "name", "state_name", "start_time", "end_time", "total_run_time", "parent_task_run_id", "run_count")
states = {
    kind: [
        {key: row.get(key) for key in keys} | {"message": (row.get("state") or {}).get("message")}
        for row in sorted(every(kind), key=lambda row: row.get("start_time") or "9")
    ]
    for kind in ("flow_runs", "task_runs")
}
(work / "states.json").write_text(json.dumps(states, indent=1))
(work / "artifacts.json").write_text(json.dumps(every("artifacts")))
main = (work / "flow_run").read_text()
lines = [f"{r['total_run_time'] or 0:8.0f} s  {r['state_name']:<10} {r['name']}" for r in states["flow_runs"]]
(work / "stages.txt").write_text("\n".join(lines) + "\n")
with (work / "logs" / "prefect.log").open("w") as out:
    rows = every("logs")
    for row in sorted(rows, key=lambda row: row["timestamp"]):
        print(row["timestamp"][:19], row["name"], row["message"], file=out)
print(client.get(f"/flow_runs/{main}").json()["state"]["type"])  # a refused run is FAILED too
PY
}

# A worker in the background of a shell ignores the signals that ask it to stop.
finish() {
  kill $(jobs -p) 2>/dev/null
  sleep 5
  kill -9 $(jobs -p) 2>/dev/null
  echo "$1" >"$WORK/ended"
}

work() {
  trap 'finish $?' EXIT
  cd "$REPOSITORY" || exit 1
  need install install
  say server
  "$PYTHON" -m prefect server start --host 127.0.0.1 --port "$PORT" >"$LOGS/server.log" 2>&1 &
  SERVER=$!
  check >"$LOGS/check.log" 2>&1 &
  local checked=$!
  need healthy healthy
  need pool "$PYTHON" -m prefect work-pool create "$POOL" --type process --overwrite
  "$PYTHON" -m prefect worker start --pool "$POOL" --limit 1 >"$LOGS/worker.log" 2>&1 &
  # Of the file this preset alone: all of them take half a minute more.
  need deploy "$PYTHON" -m prefect --no-prompt deploy --name "pipeline/$PRESET"
  need check wait "$checked"
  need start start_flow_run "$@"
  local state="" before=""
  while :; do
    sleep 10
    state=$(ask_server 2>>"$LOGS/ask.log") || state=unknown
    [[ $state != "$before" ]] && say "flow run: $state"
    before=$state
    case $state in COMPLETED) exit 0 ;; FAILED | CRASHED | CANCELLED) exit 1 ;; esac
  done
}

pack() {
  cp "$WORK/status.txt" "$OUT/status.txt" 2>/dev/null
  { echo; cat "$WORK/stages.txt"; tail -n 15 "$DOJO_ROOT"/*/logs.log; } >>"$OUT/status.txt" 2>/dev/null
  cp "$WORK"/states.json "$WORK"/artifacts.json "$OUT" 2>/dev/null
  (cd "$WORK" && tar -czf "$OUT/logs.tar.gz" logs)
  (cd "$DOJO_ROOT" && tar -cz --exclude='*.safetensors' --exclude='*.pt' --exclude='*.faiss' --exclude=verdicts \
    --exclude='*.bin' . | split -b 15M -d - "$OUT/run.tar.gz.")
  # At most eight files come back from some hosts.
  find "$OUT" -name 'run.tar.gz.0[4-9]' -delete
}

if [[ -n "${DOJO_DRIVER:-}" ]]; then
  work "$@"
  exit
fi
if [[ ! -e $WORK/pid ]]; then
  # In a session of its own: some hosts end what a command leaves running.
  DOJO_DRIVER=1 setsid bash "${BASH_SOURCE[0]}" "$OUT" 0 "$@" >"$WORK/driver.log" 2>&1 </dev/null &
  echo $! >"$WORK/pid"
  disown
fi
for ((waited = 0; waited < SECONDS_TO_WAIT; waited++)); do
  [[ -e $WORK/ended ]] && break
  kill -0 "$(cat "$WORK/pid")" 2>/dev/null || { say "FAILED: the driver is gone"; echo 1 >"$WORK/ended"; }
  sleep 1
done
pack
cat "$OUT/status.txt"
[[ -e $WORK/ended ]] || exit 75
exit "$(cat "$WORK/ended")"
