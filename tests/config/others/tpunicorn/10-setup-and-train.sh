set -e
sudo pip3 install -U tpunicorn
pu -vv babysit resnet --zone us-central1-c &
python3 -m pip install -r requirements.txt
XRT_TPU_CONFIG="tpu_worker;0;10.0.0.2:8470" torchrun --nproc 8 train.py --name "a b" --path '$HOME/x'
#= name: resnet
#= job.command: torchrun --nproc 8 train.py --name "a b" --path $HOME/x
