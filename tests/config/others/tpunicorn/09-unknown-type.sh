pu create x -a v9-8 -z mars-central1-a -p my-project
python -m train --lr 1e-4
#= project: my-project
#= job.command: python -m train --lr 1e-4
#- pu create --accelerator-type v9-8
#- pu create -z mars-central1-a
#? tpu.type
#? tpu.zones
