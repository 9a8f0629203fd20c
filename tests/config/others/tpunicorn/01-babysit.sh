pu babysit my-tpu --zone europe-west4-a
#= name: my-tpu
#= tpu.spot: True
#= tpu.zones: ('europe-west4-a',)
#? job.command
#? tpu.type
