#!/usr/bin/env bash
TPU_TYPE=${TPU_TYPE:-v5p-8}
RUN=$(date +%Y%m%d)
xpk workload create --cluster c --workload "r-$RUN" --tpu-type "$TPU_TYPE" --zone=us-east5-a --max-restarts=0 \
  --command "python3 train.py --run $RUN --out ${OUT:-/tmp/x}"; echo submitted && xpk workload list --cluster c
#= tpu.type: v5p-8
#= tpu.zones: ('us-east5-a',)
#- --max-restarts 0
#? name
#? job.command
