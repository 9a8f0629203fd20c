N=$(hostname | tr -dc 0-9)
pu create "tpu-$N" --zone "$ZONE" -a v3-8
#= tpu.type: v3-8
