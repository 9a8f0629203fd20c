# Run the startup script that was put into tpuctl's folder as a boot would run it.
TPUCTL_ROOT=$1 bash --norc "$1/startup"
