#!/bin/bash
#SBATCH --job-name=purestep-server
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
# A vLLM server on the last node samples, and a trainer that is sharded over the others learns, in turns:
#
#     RUN=/shared/runs/one VLLM=/shared/vllm/bin/python sbatch --nodes=3 --gpus-per-node=8 slurm_server.sh --steps 1000
#
# VLLM is the python of an environment that has vLLM. The rest is as in slurm_async.sh.
set -euo pipefail
: "${RUN:?name a folder that all nodes see, RUN=/shared/runs/one}" "${VLLM:?name the python of the environment of vLLM}"
ranks=${RANKS_PER_NODE:-1}
port=${PORT:-8000}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
trainers=$((${#nodes[@]} - 1)) server=${nodes[-1]}
joined() { local IFS=,; echo "$*"; }

# The trainer lays out what the server is to be started on, and then waits for it.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$server" bash -c "
    until [ -e '$RUN/served/served' ]; do sleep 1; done
    export VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
    exec '$VLLM' -m vllm.entrypoints.openai.api_server --model '$RUN/served/served' --served-model-name current \
        --host $server --port $port --dtype float32 ${VLLM_OPTIONS:-}" &
serving=$!

words=(resume "$RUN")
[ -e "$RUN/arguments.json" ] || words=(train zorplex --run "$RUN" "$@")
words+=(--server "http://$server:$port/v1")
export MASTER_ADDR=${nodes[0]} MASTER_PORT=${MASTER_PORT:-29400}
srun --overlap --nodes="$trainers" --ntasks-per-node="$ranks" --nodelist="$(joined "${nodes[@]:0:trainers}")" \
    --cpu-bind=none --kill-on-bad-exit=1 bash -c '
        export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
        exec purestep "$@"' purestep "${words[@]}" &
training=$!
stop() { stop() { :; } && kill -TERM "$training"; } # once, since a second would not wait for what is being saved
trap stop USR1 INT TERM
while kill -0 "$training" 2> /dev/null; do
    if kill -0 "$serving" 2> /dev/null; then wait -n "$training" "$serving" || true; else stop && wait "$training" || true; fi
done
wait "$training" && code=0 || code=$?
exit "$code"
