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
# ENGINE=monarch starts `purestep host` on the other nodes, ENGINE=ray a cluster of Ray over them and the first one, with a token;
# STORE are the bytes of its object store. Submit it with the environment active, so that `purestep` and `ray` are found
# on all nodes. What follows the name of this file goes to `purestep train zorplex`. Weights, and what ranks exchange, are not
# encrypted: the script passes --trust-network, so let the nodes' network be your own. Two minutes before its time is over the
# job saves and stops; ended otherwise it has what its last checkpoint holds. Submitted again with the same RUN it goes on, with
# as many nodes as it then has.
set -euo pipefail
fail() { echo "slurm_async.sh: $*" >&2; exit 1; }
: "${RUN:?name a folder that all nodes see, RUN=/shared/runs/one}"
engine=${ENGINE:-monarch}
trainers=${TRAINERS:-1}     # nodes
ranks=${RANKS_PER_NODE:-1}  # processes of the trainer on each of them
port=${PORT:-7000}          # of the generators' hosts, or of Ray's first node
patience=${PATIENCE:-600}   # seconds in which these have to listen

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
learning=("${nodes[@]:0:trainers}") sampling=("${nodes[@]:trainers}")
((${#sampling[@]})) || fail "$trainers of ${#nodes[@]} nodes learn and none samples; ask for more nodes"
[[ $engine == monarch || $engine == ray ]] || fail "ENGINE is $engine; wanted monarch or ray"
joined() { local IFS=,; echo "$*"; }
on() { # NODE... -- WORD...
    local there=()
    while [ "$1" != -- ]; do there+=("$1") && shift; done
    shift
    srun --overlap --nodes="${#there[@]}" --ntasks="${#there[@]}" --nodelist="$(joined "${there[@]}")" --cpu-bind=none "$@"
}
wait_for() { # NODE
    echo "slurm_async.sh: waiting for the host on $1:$port"
    until (exec 3<> "/dev/tcp/$1/$port") 2> /dev/null; do
        kill -0 "$hosts" 2> /dev/null || fail "no host runs; what it said is above"
        ((SECONDS < patience)) || fail "no host on $1:$port after $patience s; is that its address for others?"
        sleep 1
    done
}

words=(resume "$RUN")
[ -e "$RUN/arguments.json" ] || words=(train zorplex --mode async --run "$RUN" "$@")
words+=(--engine "$engine" --trust-network)
if [ "$engine" = monarch ]; then
    on "${sampling[@]}" -- bash -c 'exec purestep host --listen "$SLURMD_NODENAME:$1"' host "$port" &
    hosts=$!
    for node in "${sampling[@]}"; do wait_for "$node"; done
    words+=(--hosts "$(joined "${sampling[@]/%/:$port}")")
else
    mkdir -p "$RUN.cluster"
    rm -f "$RUN.cluster"/joined-*
    token=$RUN.cluster/token
    [ -s "$token" ] || (umask 077 && head -c 32 /dev/urandom | base64 -w 0 > "$token")
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token RAY_USAGE_STATS_ENABLED=0
    options=(--disable-usage-stats ${STORE:+--object-store-memory="$STORE"})
    on "${learning[0]}" -- ray start --head --block --port="$port" --include-dashboard=false "${options[@]}" &
    hosts=$!
    wait_for "${learning[0]}"
    on "${sampling[@]}" -- bash -c '
        joined=$1 && shift
        ray start --node-name="$SLURMD_NODENAME" "$@" && touch "$joined-$SLURMD_NODENAME" && exec sleep infinity' \
        node "$RUN.cluster/joined" --address="${learning[0]}:$port" "${options[@]}" &
    hosts=$!
    for node in "${sampling[@]}"; do
        until [ -e "$RUN.cluster/joined-$node" ]; do
            kill -0 "$hosts" 2> /dev/null || fail "a node of Ray has ended; what it said is above"
            ((SECONDS < patience)) || fail "$node has not joined Ray after $patience s"
            sleep 1
        done
    done
    export RAY_ADDRESS="${learning[0]}:$port"
    words+=(--hosts "$(joined "${sampling[@]}")")
fi

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
