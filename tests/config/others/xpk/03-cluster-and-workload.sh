export ZONE=us-central2-b
xpk cluster create --cluster demo --tpu-type=v4-32 --num-slices=2 --spot --zone=$ZONE --project=my-project
xpk workload create --cluster demo --workload big --tpu-type=v4-32 --num-slices=2 \
  --docker-image gcr.io/my-project/img --command 'bash setup.sh && python3 train.py'
#= project: my-project
#= tpu.zones: ('us-central2-b',)
#= tpu.spot: True
#= job.command: bash setup.sh && python3 train.py
#- --num-slices 2
#= job.image: gcr.io/my-project/img
