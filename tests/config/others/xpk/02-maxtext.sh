#!/bin/bash
set -euo pipefail
PROJECT_ID=my-project
gcloud config set project $PROJECT_ID
gcloud config set compute/zone us-east5-b
TPU_TYPE=v6e-256   # Trillium
STEPS=100
for i in 1; do
  python3 ~/xpk/xpk.py workload create \
    --cluster "$CLUSTER" --workload llama-$i \
    --base-docker-image maxtext_base_image --priority high \
    --tpu-type=${TPU_TYPE} --num-slices=1 --max-restarts=50 \
    --command "echo \$TPU_LIBRARY_PATH; python3 -m MaxText.train base.yml run_name=r1 steps=$STEPS base_output_directory=gs://my-out/"
done
#= project: my-project
#= tpu.zones: ('us-east5-b',)
#= tpu.type: v6e-256
#= job.failures: 51
#= job.env: {'STEPS': '100'}
#= job.command: echo $TPU_LIBRARY_PATH; python3 -m MaxText.train base.yml run_name=r1 steps=$STEPS base_output_directory=gs://my-out/
#- --base-docker-image maxtext_base_image
#- --priority high
#? name
#? --cluster
