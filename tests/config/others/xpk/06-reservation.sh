# nohup xpk workload create --workload old --tpu-type v2-8
xpk workload create --workload reserved --cluster c --reservation=my-res --tpu-type=v5p-128 --zone us-east5-a \
  --restart-on-exit-codes 1,2 --scheduler gke.io/topology-aware-auto --command="python3 train.py"
#= name: reserved
#= tpu.reservation: my-res
#= tpu.spot: False
#- --scheduler gke.io/topology-aware-auto
#- --restart-on-exit-codes 1,2
