#!/bin/bash
#SBATCH --job-name=purestep-async
#SBATCH --nodes=3
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
# Generators on nodes of their own, beside a trainer that is sharded over the first TRAINERS nodes:
#
#     RUN=/shared/runs/one sbatch --nodes=4 --gpus-per-node=8 slurm_async.sh --steps 1000 --generators 3
#
# What follows the name of this file goes to `purestep train zorplex`. Two minutes before its time is over, or when it is
# preempted, the job saves and stops; submitted again with the same RUN it goes on, with as many nodes as it then has.
set -euo pipefail
: "${RUN:?name a folder that all nodes see, RUN=/shared/runs/one}"
trainers=${TRAINERS:-1}     # nodes
ranks=${RANKS_PER_NODE:-1}  # processes of the trainer on each of them: one for each GPU
port=${PORT:-7000}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
learning=("${nodes[@]:0:trainers}") sampling=("${nodes[@]:trainers}")
joined() { local IFS=,; echo "$*"; }
mkdir -p "$RUN.cluster"
key=$RUN.cluster/key
[ -s "$key" ] || (umask 077 && openssl rand -hex 32 > "$key")

srun --overlap --nodes="${#sampling[@]}" --ntasks="${#sampling[@]}" --nodelist="$(joined "${sampling[@]}")" \
    bash -c "exec purestep host --listen \$SLURMD_NODENAME:$port --key '$key'" &
for node in "${sampling[@]}"; do
    until (exec 3<> "/dev/tcp/$node/$port") 2> /dev/null; do sleep 1; done
done

words=(resume "$RUN")
[ -e "$RUN/arguments.json" ] || words=(train zorplex --mode async --run "$RUN" "$@")
words+=(--key "$key" --hosts "$(joined "${sampling[@]/%/:$port}")")
export MASTER_ADDR=${learning[0]} MASTER_PORT=${MASTER_PORT:-29400}
srun --overlap --nodes="$trainers" --ntasks-per-node="$ranks" --nodelist="$(joined "${learning[@]}")" \
    --cpu-bind=none --kill-on-bad-exit=1 bash -c '
        export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
        exec purestep "$@"' purestep "${words[@]}" &
training=$!
stop() { stop() { :; } && kill -TERM "$training"; } # once, since a second would not wait for what is being saved
trap stop USR1 INT TERM
while kill -0 "$training" 2> /dev/null; do wait "$training" || true; done
wait "$training" && code=0 || code=$?
exit "$code"
