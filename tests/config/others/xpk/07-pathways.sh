xpk workload create-pathways --workload pw --num-slices=1 --tpu-type=v5litepod-16 --cluster c \
  --docker-name='user-workload' --docker-image=img --command='python3 -m MaxText.train base.yml run_name=$(USER)-1'
#= tpu.type: v5litepod-16
#- create-pathways
#- --docker-name user-workload
