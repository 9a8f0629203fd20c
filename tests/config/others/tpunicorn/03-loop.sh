#!/bin/bash
export TPU_NAME=bert-1
export MODEL_DIR=gs://my-bucket/bert
pu create $TPU_NAME --zone us-central1-f --accelerator-type v2-8 -y
pu babysit $TPU_NAME -i 60 -c 'pkill -9 -f "train.py"' &
while true
do
  timeout --signal=SIGKILL 11h python3 train.py --model_dir "$MODEL_DIR" --tpu $TPU_NAME
  echo restarting
  sleep 30
done
#= name: bert-1
#= tpu.type: v2-8
#= watch.poll: 1m
#= job.env: {'MODEL_DIR': 'gs://my-bucket/bert'}
#= job.command: python3 train.py --model_dir $MODEL_DIR --tpu $TPU_NAME
