#!/usr/bin/env bash
# The trainings of six publications as foretaste commands; published numbers are printed above ours.
#
#     bash benchmarks/papers.sh DATA RUNS [NAME...]
#
# DATA holds ml-1m.zip and ml-20m.zip of grouplens.org, or the folders that these unpack to. RUNS gets
# the datasets, and a folder of runs for each NAME; without NAME all six are trained. The first error
# ends it. The same command again keeps what is finished in RUNS, and goes on with the rest. Data from
# elsewhere are prepared by hand, by the options below, into the dataset's place in RUNS; whether they
# are split so is not checked.
#
# SEED is 1 and PRECISION is fp32 unless set. Each pair has runs of its own; gmf and ials, which compute
# in fp32 alone, have one for each SEED. SEEDS=5 trains five seeds from SEED on, and prints the mean, the
# minimum and the maximum of each metric. The best epoch is chosen on all validation users. The end of a training says its seconds, those of all epochs
# without evaluation. Ranks share trainings and measurements behind
#
#     LAUNCH="torchrun --nproc-per-node 2 -m --" bash benchmarks/papers.sh DATA RUNS
set -euo pipefail

data=${1:?DATA is missing: papers.sh DATA RUNS [NAME...]}
runs=${2:?RUNS is missing: papers.sh DATA RUNS [NAME...]}
names=(ncf-paper nvidia-ncf mult-vae-paper nvidia-vae ials-revisited recvae)
shift 2
(($# > 0)) || set -- "${names[@]}"
for name; do
    [[ " ${names[*]} " == *" $name "* ]] || {
        echo "error: there is no $name here, but ${names[*]}" >&2
        exit 2
    }
done
first=${SEED:-1} seeds=${SEEDS:-1} precision=${PRECISION:-fp32}
read -ra launch <<<"${LAUNCH:-}"

# The command, unless the dataset or run that its last word names is finished.
foretaste() {
    case $1 in
        prepare) [[ -e ${!#}/manifest.json ]] || command foretaste "$@" ;;
        train)
            grep -qs '"event": "summary"' "${!#}/metrics.jsonl" ||
                command "${launch[@]}" foretaste "${@:1:3}" --validation-users 1000000000 "${@:4}"
            ;;
        evaluate)
            if ((seeds == 1)); then
                command "${launch[@]}" foretaste "$@"
            else
                command "${launch[@]}" foretaste "$@" --format csv >>"$measured"
            fi
            ;;
        *) command "${launch[@]}" foretaste "$@" ;;
    esac
}

# The datasets in RUNS, each prepared once.
last-out() {
    foretaste prepare "$1" --source-dir "$data" --protocol leave-one-out --validation none \
        --filters reference --output "$runs/$1-last-out"
}
users-out() {
    foretaste prepare "$1" --source-dir "$data" --protocol held-out-users --filters reference \
        --output "$runs/$1-users-out"
}

# He et al. 2017, Neural Collaborative Filtering, arXiv 1708.05031, table 2, 64 factors; batch, rate and
# epochs of their code. The best epoch is chosen on the test part.
# Not as published: the 99 candidates are of our drawing. For theirs, prepare their ml-1m.train.rating
# into RUNS/ml-1m-last-out, and write fixed for sampled-99. The pretrained NeuMF goes on with SGD at
# 0.001, by Adam without momentum, whose eps no root of a squared gradient comes near, at a rate as many
# times as large.
ncf-paper() {
    last-out ml-1m
    foretaste train gmf "$runs/ml-1m-last-out" --loss bce --factors 64 --negatives 4 --batch-layout shuffled \
        --epochs 20 --patience 0 --batch-size 256 --learning-rate 0.001 --beta1 0.9 --beta2 0.999 --ema 0 \
        --candidates sampled-99 --select-by hr@10 --eval-every 1 --seed "$seed" --run "$into/gmf-$seed"
    foretaste train mlp "$runs/ml-1m-last-out" --layers 256 256 128 64 --dropout 0 --negatives 4 \
        --batch-layout shuffled --epochs 20 --patience 0 --batch-size 256 --learning-rate 0.001 --beta1 0.9 \
        --beta2 0.999 --ema 0 --candidates sampled-99 --select-by hr@10 --eval-every 1 \
        --precision "$precision" --seed "$seed" --run "$into/mlp-$of"
    foretaste train neumf "$runs/ml-1m-last-out" --factors 64 --layers 256 256 128 64 --dropout 0 --negatives 4 \
        --batch-layout shuffled --epochs 20 --patience 0 --batch-size 256 --learning-rate 0.001 --beta1 0.9 \
        --beta2 0.999 --ema 0 --candidates sampled-99 --select-by hr@10 --eval-every 1 \
        --precision "$precision" --seed "$seed" --run "$into/neumf-$of"
    foretaste train neumf "$runs/ml-1m-last-out" --factors 64 --layers 256 256 128 64 --dropout 0 --negatives 4 \
        --batch-layout shuffled --epochs 20 --patience 0 --batch-size 256 --learning-rate 10 --beta1 0 \
        --beta2 0.999 --eps 1e4 --ema 0 --candidates sampled-99 --select-by hr@10 --eval-every 1 \
        --precision "$precision" --seed "$seed" --pretrained-gmf "$into/gmf-$seed" \
        --pretrained-mlp "$into/mlp-$of" --run "$into/neumf-pretrained-$of"
    echo "published, best epoch by test as ours: NeuMF hr@10 0.705, ndcg@10 0.426; pretrained 0.730, 0.447"
    for run in neumf neumf-pretrained; do
        foretaste evaluate "$into/$run-$of" --candidates sampled-99 --metrics hr@10 ndcg@10 --quiet
    done
}

# NVIDIA, NCF for TensorFlow 1, results of container 20.07 on one A100 (its tf32 and fp16) and one V100
# (its fp32). The best epoch is chosen on the test part; candidates are drawn with repeats.
nvidia-ncf() {
    last-out ml-20m
    foretaste train neumf "$runs/ml-20m-last-out" --factors 64 --layers 256 256 128 64 --dropout 0.5 \
        --negatives 4 --no-verified-negatives --batch-layout shuffled --epochs 30 --patience 0 \
        --batch-size 1048576 --learning-rate 0.0045 --beta1 0.25 --beta2 0.5 --ema 0 \
        --candidates nvidia-100 --select-by hr@10 --eval-every 1 \
        --precision "$precision" --seed "$seed" --run "$into/neumf-$of"
    echo "published, best epoch by test as ours: hr@10 0.9588; seconds to train: tf32 59.4, fp16 53.1, fp32 120.9"
    foretaste evaluate "$into/neumf-$of" --candidates nvidia-100 --metrics hr@10 --quiet
}

# Liang et al. 2018, Variational Autoencoders for Collaborative Filtering, arXiv 1802.05814, table 2
# (ML-20M); batch, rate, epochs and annealing of their code.
# Not as published: held-out users are chosen by hash, not by the authors' seed.
mult-vae-paper() {
    users-out ml-20m
    foretaste train vae "$runs/ml-20m-users-out" --hidden 600 --latent 200 --dropout 0.5 --anneal-cap 0.2 \
        --anneal-steps 200000 --epochs 200 --patience 0 --batch-size 500 --learning-rate 0.001 \
        --learning-rate-schedule constant --beta1 0.9 --beta2 0.999 --ema 0 --select-by ndcg@100 \
        --eval-every 1 --precision "$precision" --seed "$seed" --run "$into/vae-$of"
    foretaste train dae "$runs/ml-20m-users-out" --hidden 600 --latent 200 --dropout 0.5 --epochs 200 \
        --patience 0 --batch-size 500 --learning-rate 0.001 --learning-rate-schedule constant --beta1 0.9 \
        --beta2 0.999 --ema 0 --select-by ndcg@100 --eval-every 1 \
        --precision "$precision" --seed "$seed" --run "$into/dae-$of"
    echo "published: Mult-VAE recall@20 0.395, recall@50 0.537, ndcg@100 0.426; Mult-DAE 0.387, 0.524, 0.419"
    for run in vae dae; do
        foretaste evaluate "$into/$run-$of" --metrics recall@20 recall@50 ndcg@100 --quiet
    done
}

# NVIDIA, VAE-CF for TensorFlow 1, results of container 20.06 on one A100 (its tf32 and fp16) and one
# V100 (its fp32).
# Not as published: held-out users are chosen by hash, not by NVIDIA's seed.
nvidia-vae() {
    users-out ml-20m
    foretaste train vae "$runs/ml-20m-users-out" --hidden 600 --latent 200 --dropout 0.5 --anneal-cap 0.1 \
        --anneal-steps 15000 --epochs 400 --patience 0 --batch-size 24576 --learning-rate 0.004 \
        --learning-rate-schedule constant --beta1 0.9 --beta2 0.9 --ema 0 --select-by ndcg@100 \
        --eval-every 10 --precision "$precision" --seed "$seed" --run "$into/vae-$of"
    echo "published: ndcg@100 0.4303; seconds to train: tf32 112.8, fp16 109.4, fp32 346.5"
    foretaste evaluate "$into/vae-$of" --metrics ndcg@100 --quiet
}

# Rendle et al. 2022, Revisiting the Performance of iALS, arXiv 2110.14037, settings of their code for
# ml-1m; numbers as irspack, which has these settings, prints them. The last epoch is measured.
# Not as published: the 99 candidates are of our drawing, as in ncf-paper.
ials-revisited() {
    last-out ml-1m
    foretaste train ials "$runs/ml-1m-last-out" --factors 192 --regularization 0.007 --unobserved-weight 0.3 \
        --epochs 12 --patience 0 --candidates sampled-99 --select-by hr@10 --eval-every 12 \
        --seed "$seed" --run "$into/ials-$seed"
    echo "published: hr@10 0.731, ndcg@10 0.452"
    foretaste evaluate "$into/ials-$seed" --candidates sampled-99 --metrics hr@10 ndcg@10 --quiet
}

# Shenbin et al. 2020, RecVAE, arXiv 1912.11160 (ML-20M); settings of their code.
# Not as published: held-out users are chosen by hash, not by the authors' seed.
recvae() {
    users-out ml-20m
    foretaste train recvae "$runs/ml-20m-users-out" --width 600 --latent 200 --dropout 0.5 --kl-weight 0.005 \
        --encoder-passes 3 --epochs 50 --patience 0 --batch-size 500 --learning-rate 0.0005 \
        --learning-rate-schedule constant --beta1 0.9 --beta2 0.999 --ema 0 --select-by ndcg@100 \
        --eval-every 1 --precision "$precision" --seed "$seed" --run "$into/recvae-$of"
    echo "published: recall@20 0.414, recall@50 0.553, ndcg@100 0.442"
    foretaste evaluate "$into/recvae-$of" --metrics recall@20 recall@50 ndcg@100 --quiet
}

# Mean, minimum and maximum over the seeds, from the rows of evaluate: a run's name ends in its seed.
summary='
    $10 ~ /^[0-9.]+$/ {
        name = $2; sub(/-[0-9]+$/, "", name); key = name " " $9; value = $10 + 0
        if (!(key in count) || value < low[key]) low[key] = value
        if (value > high[key]) high[key] = value
        count[key]++; sum[key] += value
    }
    END {
        for (key in count)
            printf "%s: mean %.4f, minimum %.4f, maximum %.4f of %d seeds\n",
                key, sum[key] / count[key], low[key], high[key], count[key]
    }'

measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
for name; do
    : >"$measured"
    into=$runs/$name
    for ((seed = first; seed < first + seeds; seed++)); do
        echo "== $name, $precision, seed $seed"
        of=$precision-$seed
        "$name"
    done
    awk -F, "$summary" "$measured" | sort
done
