WORKLOAD_SLICE=4x4x12
xpk workload create --workload=w7 --cluster=c --zone=us-central1-c --tpu-type="tpu7x-${WORKLOAD_SLICE}" --command="python3 t.py"
xpk workload create --workload=next --cluster=c --tpu-type=v6e-8 --command="python3 u.py"
#= name: w7
#- workload next
#- --tpu-type tpu7x-${WORKLOAD_SLICE}
#? tpu.type
