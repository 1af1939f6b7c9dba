#!/bin/bash
#SBATCH --job-name=purestep-async
#SBATCH --nodes=3
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
# Generators on nodes of their own, beside a trainer that is sharded over the first TRAINERS nodes:
#
#     RUN=/shared/runs/one sbatch --nodes=4 slurm_async.sh --no-compare --steps 1000 --generators 3
#
# Submit it with the environment active, so that `purestep` is found on all nodes. What follows the name of this file goes to
# `purestep train zorplex`. Two minutes before its time is over the job saves and stops; ended otherwise it has what its last
# checkpoint holds. Submitted again with the same RUN it goes on, with as many nodes as it then has.
set -euo pipefail
fail() { echo "slurm_async.sh: $*" >&2; exit 1; }
: "${RUN:?name a folder that all nodes see, RUN=/shared/runs/one}"
trainers=${TRAINERS:-1}     # nodes
ranks=${RANKS_PER_NODE:-1}  # processes of the trainer on each of them
port=${PORT:-7000}          # of the generators' hosts
patience=${PATIENCE:-600}   # seconds in which these have to listen

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
learning=("${nodes[@]:0:trainers}") sampling=("${nodes[@]:trainers}")
((${#sampling[@]})) || fail "$trainers of ${#nodes[@]} nodes learn and none samples; ask for more nodes"
joined() { local IFS=,; echo "$*"; }
mkdir -p "$RUN.cluster"
key=$RUN.cluster/key
[ -s "$key" ] || (umask 077 && head -c 32 /dev/urandom | base64 > "$key")

srun --overlap --nodes="${#sampling[@]}" --ntasks="${#sampling[@]}" --nodelist="$(joined "${sampling[@]}")" \
    --cpu-bind=none bash -c 'exec purestep host --listen "$SLURMD_NODENAME:$1" --key "$2"' host "$port" "$key" &
hosts=$!
for node in "${sampling[@]}"; do
    echo "slurm_async.sh: waiting for the host on $node:$port"
    until (exec 3<> "/dev/tcp/$node/$port") 2> /dev/null; do
        kill -0 "$hosts" 2> /dev/null || fail "no host runs; what 'purestep host' said is above"
        ((SECONDS < patience)) || fail "no host on $node:$port after $patience s; is that its address for others?"
        sleep 1
    done
done

words=(resume "$RUN")
[ -e "$RUN/arguments.json" ] || words=(train zorplex --mode async --run "$RUN" "$@")
words+=(--key "$key" --hosts "$(joined "${sampling[@]/%/:$port}")")
export MASTER_ADDR=${learning[0]} MASTER_PORT=${MASTER_PORT:-29400}
# With --disable-status srun passes SIGINT on; SIGTERM it would turn into a kill.
srun --overlap --nodes="$trainers" --ntasks="$((trainers * ranks))" --ntasks-per-node="$ranks" \
    --nodelist="$(joined "${learning[@]}")" --cpu-bind=none --kill-on-bad-exit=1 --disable-status bash -c '
        export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
        exec purestep "$@"' purestep "${words[@]}" &
training=$!
stop() { stop() { :; } && kill -INT "$training"; } # once, since a second would not wait for what is being saved
trap stop USR1 INT TERM
while kill -0 "$training" 2> /dev/null; do wait "$training" || true; done
wait "$training" && code=0 || code=$?
exit "$code"
