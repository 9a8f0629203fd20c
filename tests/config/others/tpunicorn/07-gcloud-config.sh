gcloud config set project trc-project
gcloud config set compute/zone us-central1-f
pu create gpt2 --accelerator-type v2-8
nohup python3 -u train.py --steps 1000 > log.txt 2>&1 &
#= project: trc-project
#= tpu.zones: ('us-central1-f',)
