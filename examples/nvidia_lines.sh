#!/bin/sh
# NVIDIA's lines: what followed `python ncf.py` goes behind `foretaste train neumf`, and what
# followed `python main.py` goes behind `foretaste train vae`. Their data set is made up here;
# `foretaste prepare ml-20m` downloads the real one.
set -eu

python - <<'EOF'
import pyarrow.csv

from foretaste.data import GenerateConfig, generate

made_up = generate(GenerateConfig(num_users=300, num_items=120, num_interactions=9_000))
pyarrow.csv.write_csv(made_up.table, "ratings.csv")
EOF

echo "# NCF: prepare, train, test"
foretaste prepare --path ratings.csv --output datasets/ncf --overwrite --quiet
foretaste train neumf --data datasets/ncf --checkpoint-dir runs/ncf --overwrite --quiet \
    -e 3 -b 4096 -f 8 --layers 32 16 8 -n 4 -l 0.0045 -b1 0.25 -b2 0.5 -k 10 --valid-negative 100
foretaste train neumf --data datasets/ncf --mode test --load-checkpoint-path runs/ncf/model.ckpt \
    -k 10 --valid-negative 100 | grep "^ hr "

echo "# VAE-CF: prepare, train, test"
foretaste prepare ratings.csv --protocol held-out-users --output datasets/vae --overwrite --quiet
foretaste train vae vae --train --data_dir datasets --checkpoint_dir runs/vae --overwrite --quiet \
    --epochs 20 --batch_size_train 64 --lr 0.004 --validation_step 10
foretaste train vae --test --checkpoint_dir runs/vae | grep "^ ndcg "
