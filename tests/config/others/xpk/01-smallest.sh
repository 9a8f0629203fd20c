xpk workload create --workload xpk-test --cluster xpk-test --tpu-type=v5litepod-16 --command "echo goodbye"
#= name: xpk-test
#= tpu.type: v5litepod-16
#= job.command: echo goodbye
#- --cluster xpk-test
#? tpu.spot
