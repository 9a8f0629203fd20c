pu create tpu-v3-8-euw4a-12 -z europe-west4-a -a v3-8 -v tpu-vm-base -p my-project --yes
#= name: tpu-v3-8-euw4a-12
#= tpu.type: v3-8
#= project: my-project
#= tpu.runtime: tpu-vm-base
