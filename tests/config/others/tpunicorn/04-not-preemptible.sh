tpunicorn create lab -np -a v2-8 -z us-central1-b -n vpc -sn lab-subnet -dd corpus -r 10.1.0.0/29
#= tpu.spot: False
#= network: vpc
#= subnetwork: lab-subnet
#= tpu.disks: ('corpus:read-write',)
#- pu create --range 10.1.0.0/29
