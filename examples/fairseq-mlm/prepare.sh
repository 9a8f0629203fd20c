#!/bin/sh
# Make text/ and data-bin/, unless they are there. Your own text: put train.txt and valid.txt into text/.
set -eu
cd "$(dirname "$0")"
[ ! -e data-bin/complete ] || exit 0
[ -s text/train.txt ] || sh venv.sh python corpus.py text
rm -rf data-bin
# --only-source: without it the files get a name that masked_lm does not find.
sh venv.sh python launch.py preprocess --only-source --tokenizer space --workers 2 \
    --trainpref text/train.txt --validpref text/valid.txt --destdir data-bin --nwordssrc 2000
touch data-bin/complete
