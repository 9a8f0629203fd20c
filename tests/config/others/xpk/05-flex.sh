xpk workload create \
--workload flex --cluster c --flex --zone europe-west4-a \
--tpu-type=v6e-8 --project=my-project --command "python3 train.py"
#= tpu.request: flex-start
#= tpu.spot: False
#= tpu.zones: ('europe-west4-a',)
