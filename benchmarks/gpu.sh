#!/usr/bin/env bash
# Every measurement and test of a GPU, in two calls of at most 570 seconds each.
#
#     bash benchmarks/gpu.sh              headline rows in bf16 within 240 s, one answer, then tests/gpu
#     PART=2 bash benchmarks/gpu.sh       the rest: other precisions, other models, scores, growth
#     TINY=1 bash benchmarks/gpu.sh       the same commands at tiny size, on the CPU
#
# Needs PyTorch with Triton, NumPy, PyArrow, safetensors, Numba, rich and lazy_loader; pytest,
# pytest-timeout and hypothesis for the tests. To a machine without a network carry what it lacks as wheels, such as
#
#     pip download --no-deps -d wheels lazy_loader                            where there is a network
#     pip install --no-index --no-deps --target site wheels/*.whl && export PYTHONPATH=$PWD/site
#
# $OUT, benchmarks/results unless set, gets what is known as soon as it is known: rows in
# gpu-$PART.jsonl, tables in gpu-$PART.md, the order with its seconds in gpu-$PART.log, and the
# tests' output in gpu-$PART-tests.log. A short table comes last.
# FORETASTE_COMMIT names the commit where the source travels without its history; PYTHON the
# interpreter; LIMIT_S the seconds after which nothing new begins.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
OUT=${OUT:-benchmarks/results}
LIMIT_S=${LIMIT_S:-560}
PART=${PART:-1}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$OUT"
rows=$OUT/gpu-$PART.jsonl tables=$OUT/gpu-$PART.md log=$OUT/gpu-$PART.log
for file in "$rows" "$tables" "$log"; do : >"$file"; done
exec 3>&2
failed=()

# limited SECONDS NAME COMMAND...: run it within these seconds, or within what is left of the time.
limited() {
    local seconds=$1 name=$2 left=$((LIMIT_S - SECONDS))
    if ((left < 10)); then
        failed+=("$name: no time left")
        return
    fi
    echo "== ${SECONDS} s: $name" | tee -a "$log" >&3
    timeout -k 5 $((seconds < left ? seconds : left)) "${@:3}" || failed+=("$name: rc $?")
}

# bench SECONDS NAME OPTIONS...; LAUNCH starts its ranks.
LAUNCH=()
bench() {
    limited "$1" "${*:2}" "$PYTHON" -m "${LAUNCH[@]}" "benchmarks.$2" "${@:3}" \
        --output "$rows" --data-cache "$WORK/data" >>"$tables" 2>>"$log"
}

tests() {
    local output=$OUT/gpu-$PART-tests.log
    limited "$1" "${*:2}" "$PYTHON" -m pytest -q -p no:cacheprovider "${@:2}" >"$output" 2>&1
    tail -n 5 "$output"
}

if [[ -n ${TINY:-} ]]; then
    common=(--device cpu --threads 1 --repeats 2)
    neumf=(--shape 80x60x800 --factors 8 --layers 16 16 8)
    vae=(--shape 80x60x800 --hidden 16 --latent 4)
    sasrec=(--shape 80x60x800 --factors 8)
    slist=(--shape 80x60x800)
    others=(fp32 fp16)
    neumf_batches=(--batch-size 512)
    vae_batches=(--batch-size 32)
    calls=(--calls 4 --batch-sizes 1 16)
    target=(--target 0.99 --max-epochs 2 --batch-size 512)
    neumf_scaling=(--shape 60x60x400 --factor 1 2 --factors 8 --layers 16 16 8)
    vae_scaling=(--shape 80x60x800 --items 60 120 --widths 16 8 --latent 4)
    operations=(tests/ops/test_segments.py)
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
    sasrec=(--shape ml-1m)
    slist=(--shape 100000x20000x2000000)
    others=(tf32 fp16)
    neumf_batches=(--steps 40 --repeats 3)
    vae_batches=(--repeats 3)
    calls=()
    target=(--target 0.05 --max-epochs 10)
    neumf_scaling=(--shape 10000x10000x200000 --factor 1 10 100)
    vae_scaling=()
    operations=(tests/ops -k cuda)
    num_ranks=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
fi

# Both parts begin with what is worth most: the time may run out.
part_1() {
    local bf16=(--precision bf16)
    bench 75 train neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" "${bf16[@]}"
    bench 55 train vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" "${bf16[@]}"
    if [[ -z ${TINY:-} ]]; then # a CPU has one form
        bench 60 kernels neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" "${bf16[@]}"
        bench 50 kernels vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" "${bf16[@]}"
    fi
    bench 30 recommend vae "${common[@]}" "${vae[@]}" "${calls[@]}" --batch-sizes 1
    tests 300 tests/gpu
}

part_2() {
    bench 40 fit sasrec "${common[@]}" "${sasrec[@]}" --precision fp32 bf16
    bench 60 fit slist "${common[@]}" "${slist[@]}" --repeats 1
    bench 40 target neumf "${common[@]}" "${neumf[@]}" "${target[@]}" --precision bf16
    bench 90 train neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" --precision "${others[@]}"
    bench 70 train vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" --precision "${others[@]}"
    bench 45 inference neumf "${common[@]}" "${neumf[@]}" "${calls[@]}"
    bench 45 inference vae "${common[@]}" "${vae[@]}" "${calls[@]}"
    bench 45 recommend neumf "${common[@]}" "${neumf[@]}" "${calls[@]}"
    bench 30 rank_all neumf "${common[@]}" "${neumf[@]}" --num-users 2000 --repeats 2
    if ((num_ranks > 1)); then
        LAUNCH=(torch.distributed.run --nproc-per-node "$num_ranks" -m --)
        bench 60 train_ranks neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" --precision bf16
        bench 60 train_ranks vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" --precision bf16
        LAUNCH=()
    fi
    bench 60 train neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" \
        --precision bf16 --plain-precision bf16
    bench 60 scaling vae "${common[@]}" "${vae_scaling[@]}" --precision bf16 --repeats 2
    bench 60 scaling neumf "${common[@]}" "${neumf_scaling[@]}" --precision bf16 --repeats 2
    tests 60 "${operations[@]}"
    if [[ -z ${TINY:-} ]]; then
        # NeuMF's fp32 kernel compiles for minutes and fits no registers, and tf32's no memory.
        bench 90 kernels vae "${common[@]}" "${vae[@]}" "${vae_batches[@]}" --precision tf32 fp16
        bench 90 kernels neumf "${common[@]}" "${neumf[@]}" "${neumf_batches[@]}" --precision fp16 fp32
    fi
}

"part_$PART"
"$PYTHON" -m benchmarks.show "$rows"
echo
echo "$(wc -l <"$rows") rows in $rows after ${SECONDS} s"
for failure in "${failed[@]}"; do
    echo "FAILED $failure"
done
exit $((${#failed[@]} > 0))
