pu create pod -a v3-32 -z europe-west4-a --async --dry-run
pu babysit pod -z europe-west4-a
pu ssh pod -w all
pu list -z europe-west4-a
#= tpu.type: v3-32
#= tpu.zones: ('europe-west4-a',)
