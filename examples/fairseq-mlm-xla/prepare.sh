#!/bin/sh
# Make text/ and data-bin/, unless they are there. Your own text: put train.txt and valid.txt into text/.
set -eu
cd "$(dirname "$0")"
[ ! -e data-bin/complete ] || exit 0
[ -s text/train.txt ] || sh venv.sh python corpus.py text
sh venv.sh python shards.py --shards "${FAIRSEQ_SHARDS:-8}"
touch data-bin/complete
