xpk workload create --workload=nccl --command="echo hi" --cluster=$CLUSTER --device-type=h100-mega-80gb-8 --num-nodes=2
#- --device-type h100-mega-80gb-8
#- --num-nodes 2
#? tpu.type
