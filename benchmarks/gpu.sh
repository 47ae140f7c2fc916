#!/usr/bin/env bash
# Every GPU measurement of docs/results.md, after the tests that prove the kernels right.
#
#     bash benchmarks/gpu.sh              on a machine with a GPU, within nine minutes
#     TINY=1 bash benchmarks/gpu.sh       the same commands at tiny size, on the CPU
#
# Needs PyTorch with Triton, NumPy, PyArrow, safetensors and lazy_loader; pytest and hypothesis for the
# tests. To a machine without a network carry what it lacks as wheels, such as
#
#     pip download --no-deps -d wheels lazy_loader                            where there is a network
#     pip install --no-index --no-deps --target site wheels/*.whl && export PYTHONPATH=$PWD/site
#
# Rows go to $OUT/gpu.jsonl and tables to $OUT/gpu.md, OUT being benchmarks/results unless set; a
# short table comes last.
# FORETASTE_COMMIT names the commit where the source travels without its history; PYTHON the
# interpreter; LIMIT_S how many seconds may pass before no further benchmark is begun; SKIP_TESTS=1
# leaves the tests out.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
OUT=${OUT:-benchmarks/results}
LIMIT_S=${LIMIT_S:-500}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$OUT"
failed=()

left() { echo $((LIMIT_S - SECONDS)); }

# A benchmark gets the seconds given first, or what is left of the time. LAUNCH starts its ranks.
LAUNCH=()
bench() {
    local seconds=$1 name="$2 $3"
    shift
    if (($(left) < 10)); then
        failed+=("$name: no time left")
        return
    fi
    seconds=$((seconds < $(left) ? seconds : $(left)))
    echo "== ${SECONDS} s: $*" >&2
    timeout -k 5 "$seconds" "$PYTHON" -m "${LAUNCH[@]}" "benchmarks.$1" "${@:2}" \
        --output "$WORK/rows.jsonl" --data-cache "$WORK/data" >>"$WORK/tables.md" || failed+=("$name: rc $?")
}

tests() {
    local paths=(tests/ops)
    [[ -d tests/gpu ]] && paths+=(tests/gpu)
    timeout -k 5 150 "$PYTHON" -m pytest -q -x -p no:cacheprovider "$@" "${paths[@]}" >"$WORK/tests.log" 2>&1
    local rc=$?
    tail -n 5 "$WORK/tests.log"
    ((rc == 0)) || failed+=("tests: rc $rc")
}

if [[ -n ${TINY:-} ]]; then
    common=(--device cpu --threads 1 --repeats 2)
    neumf=(--shape 80x60x800 --factors 8 --layers 16 16 8)
    vae=(--shape 80x60x800 --hidden 16 --latent 4)
    precisions=(fp32 bf16 fp16)
    neumf_batches=(--batch-size 512)
    vae_batches=(--batch-size 32)
    calls=(--calls 4 --batch-sizes 1 16)
    target=(--target 0.99 --max-epochs 2 --batch-size 512)
    neumf_scaling=(--shape 60x60x400 --factor 1 2 --factors 8 --layers 16 16 8)
    vae_scaling=(--shape 80x60x800 --items 60 120 --widths 16 8 --latent 4)
    selected=(-k test_random)
    num_ranks=2
else
    "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
        echo "no CUDA GPU here; TINY=1 runs the same commands on the CPU" >&2
        exit 1
    }
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader
    common=(--device cuda)
    neumf=(--shape ml-20m)
    vae=(--shape ml-20m)
    precisions=(fp32 tf32 bf16 fp16)
    neumf_batches=(--steps 40 --repeats 3)
    vae_batches=(--repeats 3)
    calls=()
    target=(--target 0.05 --max-epochs 10)
    neumf_scaling=(--shape 10000x10000x200000 --factor 1 10 100)
    vae_scaling=()
    selected=()
    num_ranks=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
fi

[[ -n ${SKIP_TESTS:-} ]] || tests "${selected[@]}"

# What matters most comes first: the time may run out.
bench 120 train neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" \
    --precision "${precisions[@]}"
bench 90 train vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" \
    --precision "${precisions[@]}"
if [[ -z ${TINY:-} ]]; then # a CPU has one form
    bench 60 kernels neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" \
        --precision "${precisions[@]}"
    bench 60 kernels vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" \
        --precision "${precisions[@]}"
fi
for precision in "${precisions[@]}"; do
    bench 40 target neumf "${common[@]}" "${neumf[@]}" "${target[@]}" --precision "$precision"
done
bench 60 inference neumf "${common[@]}" "${neumf[@]}" "${calls[@]}"
bench 45 inference vae "${common[@]}" "${vae[@]}" "${calls[@]}"
bench 60 recommend vae "${common[@]}" "${vae[@]}" "${calls[@]}"
bench 60 recommend neumf "${common[@]}" "${neumf[@]}" "${calls[@]}"
bench 60 rank_all neumf "${common[@]}" "${neumf[@]}" --num-users 2000 --repeats 2
bench 60 train neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" \
    --precision bf16 --plain-precision bf16
bench 90 scaling vae "${common[@]}" "${vae_scaling[@]}" --precision bf16 --repeats 2
bench 90 scaling neumf "${common[@]}" "${neumf_scaling[@]}" --precision bf16 --repeats 2

if ((num_ranks > 1)); then
    LAUNCH=(torch.distributed.run --nproc-per-node "$num_ranks" -m --)
    bench 90 train_ranks neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" --precision bf16
    bench 90 train_ranks vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" --precision bf16
fi

touch "$WORK/rows.jsonl" "$WORK/tables.md"
cp "$WORK/rows.jsonl" "$OUT/gpu.jsonl"
cp "$WORK/tables.md" "$OUT/gpu.md"
"$PYTHON" -m benchmarks.show "$OUT/gpu.jsonl"
echo
echo "$(wc -l <"$OUT/gpu.jsonl") rows in $OUT/gpu.jsonl after ${SECONDS} s"
for failure in "${failed[@]}"; do
    echo "FAILED $failure"
done
exit $((${#failed[@]} > 0))
