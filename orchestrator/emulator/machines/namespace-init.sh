#!/bin/bash
# The first process (pid 1) of a namespace machine. unshare(1) has already made the mount, pid, uts and
# ipc namespaces. It builds the machine's file system, moves into it and runs the guest agent; when the
# agent ends, pid 1 ends, and the kernel kills and unmounts everything else.
#
# Arguments: machine folder, host name, disk limit in bytes (0: none), python, a program that the image lacks
# (empty: none), a folder that all machines share (empty: none), then folders that the guest needs. The machine's own /root, /home or /tmp may hide these.
set -euo pipefail

folder=$1 name=$2 limit=$3 python=$4 lacking=$5 shared=$6
shift 6
guest=""
pressed=""

power_button() {
    pressed=yes
    if [ -n "$guest" ]; then kill -TERM "$guest" 2>/dev/null || true; fi
}

complain() {
    echo "local cloud: the machine cannot boot; the reason is in guest.log" >>"$folder/guest/serial.log"
}

trap power_button TERM
trap complain ERR
cd "$folder"

# A limited disk is an ext4 image: it keeps its content over a stop, which a tmpfs would not.
mkdir -p disk merged
if [ "$limit" -gt 0 ]; then
    if [ ! -e disk.img ]; then
        truncate -s "$limit" disk.new
        mkfs.ext4 -q -F disk.new
        mv disk.new disk.img
    fi
    mount -o loop,noatime disk.img disk
fi
mkdir -p disk/upper disk/work disk/home disk/root

# Relative paths: commas and colons in the folder's own path would end an option.
mount -t overlay -o lowerdir=/,upperdir=disk/upper,workdir=disk/work overlay merged
if [ -n "$lacking" ]; then rm -f merged/{usr/,}{local/,}bin/"$lacking"; fi
cp --remove-destination -L /etc/resolv.conf merged/etc/resolv.conf
mount -t proc proc merged/proc
mount --rbind /sys merged/sys
mount --rbind /dev merged/dev
mount -t tmpfs -o mode=1777 tmpfs merged/dev/shm
mount -t tmpfs -o mode=0755 tmpfs merged/run
mount -t tmpfs -o mode=1777 tmpfs merged/tmp

# The computer's own users, keys and credentials stay out of sight.
mount --bind disk/home merged/home
mount --bind disk/root merged/root
mkdir merged/run/local-cloud
mount --bind guest merged/run/local-cloud

# Data disks: folders that outlive the machine, named as Google names their devices.
mkdir merged/run/local-cloud-disks
for device in dev/disk/by-id/*; do
    if [ -d "$device" ]; then
        mkdir "merged/run/local-cloud-disks/${device##*/}"
        mount --bind "$device/" "merged/run/local-cloud-disks/${device##*/}"
    fi
done

for path in "$@"; do
    # An empty folder is a hidden one, or the mount point that an earlier boot left on the disk.
    if [ -z "$(ls -A "merged$path" 2>/dev/null)" ]; then
        mkdir -p "merged$path"
        mount --bind "$path" "merged$path"
        mount -o remount,bind,ro "merged$path"
    fi
done

# Packages, as from a mirror: what one machine has fetched, the next one need not.
if [ -n "$shared" ]; then
    mkdir -p "merged$shared"
    mount --bind "$shared" "merged$shared"
fi

# The computer's own cron jobs must not run a second time on the machine.
if [ ! -e disk/booted ]; then
    rm -rf merged/etc/crontab merged/etc/cron.d merged/var/spool/cron/crontabs
    mkdir -p merged/etc/cron.d merged/var/spool/cron/crontabs
    # cron sees a change by whole seconds of these times: a file written in this very second would be missed.
    touch -d 2000-01-01 merged/etc/cron.d merged/var/spool/cron/crontabs
    touch disk/booted
fi

hostname "$name"
cd merged
pivot_root . .
umount -l .
cd /
trap - ERR

"$python" -m orchestrator.emulator.machines.guest /run/local-cloud/config.json &
guest=$!
if [ -n "$pressed" ]; then kill -TERM "$guest"; fi
while kill -0 "$guest" 2>/dev/null; do
    wait "$guest" || true
done
