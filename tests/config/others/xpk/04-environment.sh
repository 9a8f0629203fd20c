WANDB_API_KEY=0123456789012345678901234567890123456789
xpk workload create --workload env --cluster c --tpu-type v5p-8 --on-demand \
  --env LIBTPU_INIT_ARGS="--xla_tpu_enable_async_collective_fusion=true" --env HF_TOKEN=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 \
  --env-file=./env.txt --env "WANDB_API_KEY=$WANDB_API_KEY" \
  --termination-grace-period-seconds=60 --ttl-seconds-after-finished 3600 \
  --script-dir=./trainer --enable-debug-logs --use-vertex-tensorboard --storage data \
  --command "python3 train.py"
#= tpu.spot: False
#= job.env: {'LIBTPU_INIT_ARGS': '--xla_tpu_enable_async_collective_fusion=true'}
#= job.secrets: {'HF_TOKEN': 'secret://hf-token', 'WANDB_API_KEY': 'secret://wandb-api-key'}
#= job.grace: 1m
#= job.source: trainer
#- --env-file
#- --enable-debug-logs
#- --storage data
#- --ttl-seconds-after-finished 3600
#! hf_NotARealToken
#! 0123456789012345
