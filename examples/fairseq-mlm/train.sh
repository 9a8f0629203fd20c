#!/bin/sh
# Train. Flags given here come last and so win: sh train.sh --max-update 1000 --lr 1e-4
# A small model that a CPU trains in seconds; for the real one: --arch roberta_base and no sizes.
# --data-buffer-size 0: else fairseq reads ahead in a thread, and that one and the one of the validation draw
# their masks from NumPy's one global generator. After a stop in mid-epoch a batch then gets another mask.
set -eu
cd "$(dirname "$0")"
exec sh venv.sh python launch.py train data-bin \
    --task masked_lm --criterion masked_lm --sample-break-mode complete \
    --tokens-per-sample 32 --max-positions 32 --batch-size 32 \
    --arch roberta_base --encoder-layers 2 --encoder-embed-dim 64 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 --dropout 0.1 --attention-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
    --lr-scheduler polynomial_decay --lr 3e-3 --warmup-updates 20 \
    --max-update "${FAIRSEQ_UPDATES:-120}" --total-num-update "${FAIRSEQ_UPDATES:-120}" \
    --train-subset train --valid-subset valid --num-workers 0 --data-buffer-size 0 --seed 0 --cpu \
    --save-dir "${TPUCTL_CHECKPOINT_DIR:-checkpoints}" \
    --save-interval-updates 20 --keep-interval-updates 3 --keep-last-epochs 2 \
    --log-format simple --log-interval 10 --tensorboard-logdir runs "$@"
