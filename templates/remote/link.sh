# Link the machine folder, whose path differs, into the login's home, where scp and rsync start. $1 is the folder of
# a machine that names none.
root=${TPUCTL_ROOT:-}
[ -n "$root" ] || root=$1
cd && { [ -e tpuctl ] || [ -L tpuctl ] || ln -s "$root" tpuctl; }
