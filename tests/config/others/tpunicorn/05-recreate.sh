while true
do
  pu recreate foo --preempted --yes --retry 60 --retry-randomness 1.5 \
   -c "echo TPU recreated. >> logs.txt" \
   -c "pkill -9 -f my_training_program.py"
  sleep 30
done
#= name: foo
#- pu recreate --retry 60
#- pu recreate --command
