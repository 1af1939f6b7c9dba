#!/bin/bash
#SBATCH --job-name=purestep-server
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
# A vLLM server on the last node samples, and a trainer that is sharded over the others learns, in turns:
#
#     RUN=/shared/runs/two VLLM=/shared/vllm/bin/python sbatch --nodes=3 slurm_server.sh --steps 1000
#
# VLLM is the python of an environment that has vLLM, VLLM_OPTIONS more words for its server. The rest is as in slurm_async.sh.
set -euo pipefail
fail() { echo "slurm_server.sh: $*" >&2; exit 1; }
: "${RUN:?name a folder that all nodes see, RUN=/shared/runs/one}" "${VLLM:?name the python of the environment of vLLM}"
ranks=${RANKS_PER_NODE:-1} # processes of the trainer on each of its nodes
port=${PORT:-8000}          # of the server

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
((${#nodes[@]} > 1)) || fail "${#nodes[@]} node; ask for at least 2, the last of which is the server's"
trainers=$((${#nodes[@]} - 1)) server=${nodes[-1]}
joined() { local IFS=,; echo "$*"; }

# The trainer lays out what the server is to be started on, and then waits for it.
# shellcheck disable=SC2086 # VLLM_OPTIONS are words
srun --overlap --nodes=1 --ntasks=1 --nodelist="$server" --cpu-bind=none bash -c '
    vllm=$1 model=$2 host=$3 port=$4
    shift 4
    until [ -e "$model" ]; do sleep 1; done
    export VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
    exec "$vllm" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name current \
        --host "$host" --port "$port" --dtype float32 "$@"' \
    server "$VLLM" "$RUN/served/served" "$server" "$port" ${VLLM_OPTIONS:-} &
serving=$!

words=(resume "$RUN")
[ -e "$RUN/arguments.json" ] || words=(train zorplex --run "$RUN" "$@")
words+=(--server "http://$server:$port/v1" --trust-network)
export MASTER_ADDR=${nodes[0]} MASTER_PORT=${MASTER_PORT:-29400}
# With --disable-status srun passes SIGINT on; SIGTERM it would turn into a kill.
srun --overlap --nodes="$trainers" --ntasks="$((trainers * ranks))" --ntasks-per-node="$ranks" \
    --nodelist="$(joined "${nodes[@]:0:trainers}")" --cpu-bind=none --kill-on-bad-exit=1 --disable-status bash -c '
        export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
        exec purestep "$@"' purestep "${words[@]}" &
training=$!
stop() { stop() { :; } && kill -INT "$training"; } # once, since a second would not wait for what is being saved
trap stop USR1 INT TERM
while kill -0 "$training" 2> /dev/null; do
    if kill -0 "$serving" 2> /dev/null; then wait -n "$training" "$serving" || true; else stop && wait "$training" || true; fi
done
wait "$training" && code=0 || code=$?
exit "$code"
