#!/bin/bash
# Slurm on a machine of a fleet, from the distribution's packages unpacked into a folder: nothing is installed.
#   slurm.sh engine   bring the packages into the bucket, unless they are there, and print the archive's name
#   slurm.sh database the same with the packages of the database, which only the VM of a fleet with users needs
#   slurm.sh head     keep the Slurm controller running on the VM, by cron and now
#   slurm.sh cron     what cron does there each minute
#   slurm.sh keep     copy the queue's state into the bucket, for a minute
#   slurm.sh node     be a node: the job of each TPU of the fleet
#   slurm.sh call W.. run a command of Slurm
#   slurm.sh submit   queue those tasks of a job that are not queued
#   slurm.sh lost     say that a node's machine is gone
#   slurm.sh nodes    say how each node is: the time in seconds, then a line for each
#   slurm.sh drain    let no task begin on a node that has nothing to do; say how it is then
#   slurm.sh undrain  let tasks begin there again
#   slurm.sh returning say that a drained machine was deleted: the next one of its name may have tasks
# FLEET_* come from the job's environment on a node, and from slurm/settings on the VM.
set -euo pipefail
umask 077

here=${TPUCTL_ROOT:?}/slurm
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 libjson-c5
  liblua5.1-0 libyaml-0-2 libnuma1"
# Of names with | between them the first one that the distribution has.
database_packages="slurmdbd slurm-wlm-mysql-plugin mariadb-server-core-10.6|mariadb-server-core libmariadb3
  libaio1t64|libaio1 liburing2"

fail() {
  echo "slurm.sh: $1" >&2
  exit 1
}

bucket() {
  # In the folder $1 of the fleet's bucket: list, get NAME FILE (4: it is not there), put NAME FILE (unless it is
  # there), replace NAME FILE.
  TPUCTL_PREFIX='' python3 -E - "$@" <<'END'
import os, sys
sys.path.insert(0, os.path.join(os.environ["TPUCTL_ROOT"], "agent.pyz"))
from pathlib import Path
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.contract.machine_errors import PreconditionError
held = JobBucket.from_environ(os.environ["TPUCTL_BUCKET"], os.environ, Metadata.from_environ(os.environ))
folder, verb, names = sys.argv[1] + "/", sys.argv[2], sys.argv[3:]
if verb == "list":
    print(*(name[len(folder):] for name in held.list(folder)), sep="\n")
elif verb == "get":
    found = held.stat(folder + names[0])
    if found is None:
        sys.exit(4)
    held.download(folder + names[0], Path(names[1]), int(found["size"]))
elif verb == "put" and Path(names[1]).stat().st_size > 8 << 20:
    held.upload(folder + names[0], Path(names[1]), Path(names[1]).stat().st_size)
else:
    try:
        held.write(folder + names[0], Path(names[1]).read_bytes(), 0 if verb == "put" else None)
    except PreconditionError:
        pass
END
}

fetch_packages() {
  # $2... into $1. A machine that has just booted may have no lists yet, or somebody else is fetching them.
  local tries word name chosen
  for ((tries = 1; ; tries++)); do
    chosen=()
    for word in "${@:2}"; do
      for name in ${word//|/ }; do
        ! apt-get download -qq --print-uris "$name" >/dev/null 2>&1 || break
      done
      chosen+=("$name")
    done
    (cd "$1" && apt-get download -qq "${chosen[@]}") >&2 && return
    [ "$tries" -lt 20 ] || fail "the packages of Slurm could not be fetched: ${chosen[*]}"
    apt-get update -qq >&2 || true
    sleep 3
  done
}

archive() {
  # The archive $2-SHA256.tar.gz in the folder $1, made of the packages $3... unless it is there; its name is $found.
  local work name
  mkdir -p "$here"
  # A bucket that does not answer is no empty one: a second archive would be another Slurm.
  found=$(bucket "$1" list)
  found=$(grep -E "^$2-[0-9a-f]{64}\\.tar\\.gz\$" <<<"$found" | head -n 1) || true
  if [ -z "$found" ]; then
    # What a killed one has fetched is deleted: nobody holds the lock on it.
    for work in "$here"/fetch.*; do
      [ ! -d "$work" ] || flock -n "$work" rm -rf "$work" || true
    done
    # Until the lock is held, another fetch takes a new folder for one of a killed fetch: then it is made again.
    while :; do
      work=$(mktemp -d "$here/fetch.XXXXXX")
      { exec 7<"$work"; } 2>/dev/null || continue
      flock 7
      [ ! "$work" -ef /dev/fd/7 ] || break
    done
    mkdir "$work/debs" "$work/tree"
    fetch_packages "$work/debs" "${@:3}"
    for name in "$work"/debs/*.deb; do
      dpkg -x "$name" "$work/tree"
    done
    rm -rf "$work"/tree/usr/share/{doc,man,locale}
    for name in slurmctld slurmd slurmstepd; do
      # Under another name slurmctld takes itself for a client.
      [ ! -e "$work/tree/usr/sbin/$name-wlm" ] || ln -sfn "$name-wlm" "$work/tree/usr/sbin/$name"
    done
    tar -C "$work/tree" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | gzip -n >"$work/tree.tar.gz"
    found=$2-$(sha256sum "$work/tree.tar.gz" | cut -d ' ' -f 1).tar.gz
    bucket "$1" put "$found" "$work/tree.tar.gz"
    rm -rf "$work"
    exec 7<&-
  fi
}

engine() {
  # The VM has the oldest system of the fleet, so what runs here runs on every node.
  # shellcheck disable=SC2086
  archive engine slurm $packages
  # The VM's own copy outlives one that was deleted from the bucket.
  if [ -s "$here/munge.key" ]; then cat "$here/munge.key"; else head -c 1024 /dev/urandom; fi >"$here/munge.new"
  bucket engine put munge.key "$here/munge.new"
  rm -f "$here/munge.new"
  printf '%s\n' "$found"
}

database() {
  # shellcheck disable=SC2086
  archive database database $database_packages
  printf '%s\n' "$found"
}

unpack() {
  # Unpack the archive $1, named by its sha256, into $2, once.
  local sum=${1##*-}
  [ ! -d "$2" ] || return 0
  [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "${sum%.tar.gz}" ] || fail "$1 has another sha256 than its name"
  rm -rf "$2.new"
  mkdir -p "$2.new"
  tar -xzf "$1" -C "$2.new" --no-same-owner
  mv -T "$2.new" "$2"
}

fetch() {
  # The archive $2 from the folder $1, unpacked into $3.
  [ -s "$here/$2" ] || { bucket "$1" get "$2" "$here/$2.new" && mv -f "$here/$2.new" "$here/$2"; }
  unpack "$here/$2" "$3"
}

environment() {
  local library
  tree=$here/tree-${FLEET_ENGINE:6:12}
  library=$(dirname "$(find "$tree/usr/lib" -maxdepth 2 -type d -name slurm-wlm | head -n 1)")
  plugins=$library/slurm-wlm
  export PATH=$tree/usr/bin:$tree/usr/sbin:$PATH LD_LIBRARY_PATH=$library:$plugins SLURM_CONF=$here/slurm.conf
  [ -n "${FLEET_DATABASE:-}" ] || return 0
  data=$here/database-${FLEET_DATABASE:9:12}
  library=$(dirname "$(find "$data/usr/lib" -maxdepth 2 -type d -name slurm-wlm | head -n 1)")
  plugins=$plugins:$library/slurm-wlm
  export PATH=$PATH:$data/usr/sbin LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$library
}

shorten() {
  # A socket's path has 107 characters at most; a machine of a local cloud lies deep in folders.
  short=$here
  [ "${#here}" -gt 60 ] || return 0
  find /tmp -maxdepth 1 -name 'tpuctl-slurm-*' -user "$(id -u)" -xtype l -delete 2>/dev/null || true
  short=/tmp/tpuctl-slurm-$(sha256sum <<<"$here" | cut -c 1-12)
  ln -sfn "$here" "$short" && [ -O "$short" ] || fail "$short is not ours"
}

configure() {
  # $1 is the name that the Slurm controller has here.
  local last=$((FLEET_PORT + FLEET_NODES)) me
  me=$(id -un)
  mkdir -p "$here/state" "$here/spool" "$here/log"
  shorten
  cat >"$here/slurm.conf.new" <<END
ClusterName=$FLEET_NAME
SlurmctldHost=$1($FLEET_HEAD)
SlurmctldPort=$FLEET_PORT
SlurmUser=$me
SlurmdUser=$me
MailProg=/bin/true
AuthType=auth/munge
AuthInfo=socket=$short/munge.sock,cred_expire=10
CredType=cred/munge
PluginDir=$plugins
StateSaveLocation=$here/state
SlurmdSpoolDir=$short/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/log/slurmctld.log
SlurmdLogFile=$here/log/slurmd.log
DebugFlags=NO_CONF_HASH
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1
PriorityType=priority/multifactor
JobRequeue=1
RequeueExit=75
ReturnToService=2
SlurmdTimeout=300
KillWait=30
MinJobAge=300
FirstJobId=$(cat "$here/first" 2>/dev/null || echo 1)
MaxArraySize=10001
NodeName=$FLEET_NAME-[001-$(printf %03d "$FLEET_NODES")] NodeAddr=127.0.0.1 NodeHostName=localhost Port=[$((FLEET_PORT + 1))-$last] CPUs=1 RealMemory=100 ${FLEET_ZONES:+Feature=$FLEET_ZONES}
PartitionName=tpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
END
  [ -z "${FLEET_DATABASE:-}" ] || cat >>"$here/slurm.conf.new" <<END
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$((FLEET_PORT + 120))
AccountingStoragePass=$short/munge.sock
AccountingStorageEnforce=associations,limits,qos
PriorityCalcPeriod=1
PriorityWeightFairshare=10000
PriorityWeightQOS=1000000
PreemptType=preempt/qos
PreemptMode=REQUEUE
END
  mv -f "$here/slurm.conf.new" "$here/slurm.conf"
}

fetch_key() {
  # Bring the key of Slurm's messages; true when it is another one than before.
  bucket engine get munge.key "$here/munge.key.new" && ! cmp -s "$here/munge.key.new" "$here/munge.key" || return 1
  chmod 400 "$here/munge.key.new"
  mv -f "$here/munge.key.new" "$here/munge.key"
  [ ! -s "$here/munge.pid" ] || kill "$(cat "$here/munge.pid")" 2>/dev/null || true
  flock -w 10 "$here/munge.lock" true || true
}

recall() {
  # On a new disk, begin with the last copy of the queue's state: by it tasks that run are known, and go on. Without
  # a copy the bucket's jobs are submitted again, with numbers of Slurm that no task on a node has by accident.
  local status=0
  mkdir -p "$here/state"
  [ -s "$here/first" ] || echo $((1 + RANDOM * 1800)) >"$here/first"
  [ -z "$(find "$here/state" -name 'job_state*' -print -quit)" ] || return 0
  bucket head get "state-${FLEET_ENGINE:6:12}.tar" "$here/state.tar" || status=$?
  case $status in
    0) tar -xf "$here/state.tar" -C "$here/state" --no-same-owner && rm -f "$here/state.tar" ;;
    4) ;;
    *) fail "the copy of the queue's state cannot be read" ;;
  esac
}

keep() {
  # Slurm replaces each file as a whole, and reads the one before when one is missing: a copy is never torn.
  local tries
  settings
  for ((tries = 0; tries < 5; tries++)); do
    save || true
    tar -C "$here/state" -cf "$here/kept.new" . 2>/dev/null || true
    if [ -n "$(find "$here/state" -name 'job_state*' -print -quit)" ] && ! cmp -s "$here/kept.new" "$here/kept"; then
      bucket head replace "state-${FLEET_ENGINE:6:12}.tar" "$here/kept.new"
      mv -f "$here/kept.new" "$here/kept"
    fi
    sleep 10
  done
}

save() {
  # Slurm writes a start down within 5 s if its main scheduler made it, but one of backfill's with the next change only,
  # and a controller that was killed would start the task again. A change of a comment is enough.
  local saved began task
  saved=$(stat -c %Y "$here/state/job_state" 2>/dev/null) || return 0
  read -r began task < <(SLURM_TIME_FORMAT=%s squeue -h -t R -o '%S %A' | sort -n | tail -n 1) || return 0
  [ "$began" -lt "$saved" ] || scontrol update jobid="$task" comment=begun
}

authenticate() {
  # Keep munged running; programs of the same key trust each other.
  flock -n "$here/munge.lock" true || return 0
  rm -f "$here/munge.sock"
  setsid flock -n "$here/munge.lock" munged --force --foreground --socket="$short/munge.sock" --key-file="$here/munge.key" \
    --pid-file="$here/munge.pid" --log-file="$here/log/munged.log" --seed-file="$here/munge.seed" \
    </dev/null >>"$here/log/munged.out" 2>&1 &
  wait_for_socket munge munged
}

wait_for_socket() {
  # Until the socket $1 is there, for half a minute; its program $2 says why it is not.
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    [ ! -S "$here/$1.sock" ] || return 0
    sleep 0.1
  done
  fail "$2 does not start: $(tail -n 2 "$here/log/$2.out")"
}

settings() {
  [ -s "$here/settings" ] || fail "this machine is no fleet's Slurm controller"
  set -a
  # shellcheck source=/dev/null
  . "$here/settings"
  set +a
}

head_() {
  settings
  local line
  mkdir -p "$here/log" "${TPUCTL_CRON_DIR:-/etc/cron.d}"
  fetch engine "$FLEET_ENGINE" "$here/tree-${FLEET_ENGINE:6:12}"
  [ -z "${FLEET_DATABASE:-}" ] || fetch database "$FLEET_DATABASE" "$here/database-${FLEET_DATABASE:9:12}"
  fetch_key || [ -s "$here/munge.key" ] || fail "the key of Slurm's messages is not in the bucket"
  recall
  printf -v line '%q %q cron' "TPUCTL_ROOT=$TPUCTL_ROOT" "$here/slurm.sh"
  printf '# Keep Slurm running. Made by tpuctl.\n* * * * * root %s\n' "${line//%/\\%}" |
    (umask 022 && cat >"${TPUCTL_CRON_DIR:-/etc/cron.d}/tpuctl-slurm.new")
  mv -f "${TPUCTL_CRON_DIR:-/etc/cron.d}/tpuctl-slurm.new" "${TPUCTL_CRON_DIR:-/etc/cron.d}/tpuctl-slurm"
  cron
  local tries
  for ((tries = 0; tries < 150; tries++)); do
    if scontrol ping 2>/dev/null | grep -q UP; then
      printf '%s\n' "$FLEET_HEAD" >"$here/address.new"
      bucket head replace address "$here/address.new"
      return 0
    fi
    sleep 0.2
  done
  fail "slurmctld does not answer: $(tail -n 3 "$here/log/slurmctld.log")"
}

mariadb() {
  # MariaDB with a socket in a folder that only its user may enter, and no port. It knows that user by the socket:
  # there is no password.
  local me sql=$here/sql common
  me=$(id -un)
  common=(--no-defaults "--basedir=$data/usr" "--datadir=$sql" "--user=$me" "--lc-messages-dir=$data/usr/share/mysql"
    --innodb-log-file-size=16M --innodb-buffer-pool-size=16M --performance-schema=OFF --key-buffer-size=1M
    --aria-pagecache-buffer-size=1M)
  flock -n "$here/mariadbd.lock" true || return 0
  if [ ! -d "$sql" ]; then
    rm -rf "$sql.new" "$here/accounts.read"
    mkdir -p "$sql.new"
    {
      printf '%s;\n' 'create database slurm' 'create database mysql' 'use mysql'
      # slurmdbd uses stored procedures, which lie in the database's own tables.
      cat "$data/usr/share/mysql/mysql_system_tables.sql"
      printf "\ninsert into mysql.global_priv values ('localhost', '%s', '%s');\n" "$me" \
        '{"access":18446744073709551615,"plugin":"unix_socket"}'
    } | mariadbd "${common[@]}" "--datadir=$sql.new" --bootstrap --skip-grant-tables >>"$here/log/mariadbd.out" 2>&1 ||
      fail "MariaDB does not start: $(tail -n 2 "$here/log/mariadbd.out")"
    mv -T "$sql.new" "$sql"
  fi
  rm -f "$here/mariadbd.sock"
  setsid flock -n "$here/mariadbd.lock" mariadbd "${common[@]}" --skip-networking "--socket=$short/mariadbd.sock" \
    "--pid-file=$here/mariadbd.pid" --max-connections=20 --innodb-lock-wait-timeout=900 \
    </dev/null >>"$here/log/mariadbd.out" 2>&1 &
  wait_for_socket mariadbd mariadbd
}

shares() {
  # Keep the database of shares running, and give it the accounts.
  local line words
  mariadb
  if flock -n "$here/slurmdbd.lock" true; then
    cat >"$here/slurmdbd.conf.new" <<END
AuthType=auth/munge
AuthInfo=socket=$short/munge.sock
PluginDir=$plugins
DbdHost=localhost
DbdPort=$((FLEET_PORT + 120))
SlurmUser=$(id -un)
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=$(id -un)
StorageLoc=slurm
LogFile=$here/log/slurmdbd.log
PidFile=$here/slurmdbd.pid
END
    mv -f "$here/slurmdbd.conf.new" "$here/slurmdbd.conf"
    MYSQL_UNIX_PORT=$short/mariadbd.sock setsid flock -n "$here/slurmdbd.lock" slurmdbd -D \
      </dev/null >>"$here/log/slurmdbd.out" 2>&1 &
  fi
  ! cmp -s "$here/accounts" "$here/accounts.read" || return 0
  local tries
  for ((tries = 0; ; tries++)); do
    ! timeout 10 sacctmgr -nP show cluster >/dev/null 2>&1 || break
    [ "$tries" -lt 60 ] || fail "slurmdbd does not answer: $(tail -n 3 "$here/log/slurmdbd.log")"
    sleep 0.5
  done
  while read -r line; do
    read -ra words <<<"${line//@me/$(id -un)}"
    # What it is told to add may be there: it then fails, and says so.
    timeout 60 sacctmgr -i "${words[@]:1}" </dev/null >"$here/log/sacctmgr.out" 2>&1 || [ "${words[0]}" = may ] ||
      fail "sacctmgr ${words[*]:1}: $(tail -n 2 "$here/log/sacctmgr.out")"
  done <"$here/accounts"
  cp -f "$here/accounts" "$here/accounts.read"
}

cron() {
  settings
  # By cron it has no more environment than its line says; `keep` needs the bucket.
  if [ -z "${TPUCTL_BUCKET:-}" ]; then
    set -a
    # shellcheck source=/dev/null
    . "$TPUCTL_ROOT/machine.env"
    set +a
  fi
  environment
  configure "$(hostname -s)"
  authenticate
  # Without its database slurmctld goes on with the shares that it remembers; the first time it has none.
  if [ -n "${FLEET_DATABASE:-}" ]; then
    # One at a time; what it starts must not keep the lock.
    { flock 8 && (shares) 8>&-; } 8>"$here/shares.lock" || [ -e "$here/state/assoc_mgr_state" ] || exit 1
  fi
  if [ -s "$here/slurm.conf.read" ] && ! cmp -s "$here/slurm.conf" "$here/slurm.conf.read"; then
    # Not `scontrol reconfigure`: it forgets addresses and zones of nodes, which tell them only to a controller that has
    # begun, and it ends when the number of nodes is another.
    kill "$(cat "$here/slurmctld.pid" 2>/dev/null)" 2>/dev/null || true
    flock -w 30 "$here/slurmctld.lock" true || true
  fi
  if flock -n "$here/slurmctld.lock" true; then
    setsid flock -n "$here/slurmctld.lock" slurmctld -D </dev/null >>"$here/log/slurmctld.out" 2>&1 &
  fi
  cp -f "$here/slurm.conf" "$here/slurm.conf.read"
  setsid flock -n "$here/keep.lock" bash "$here/slurm.sh" keep </dev/null >>"$here/log/keep.log" 2>&1 &
  tend
}

tend() {
  # Slurm puts a task that has lost its machine behind all others, where it may starve.
  local task restarts nice node reason
  squeue -h -r -t PD -O 'JobArrayID:.30,RestartCnt:.8,Nice:.12' 2>/dev/null | while read -r task restarts nice; do
    [ "$restarts" = 0 ] || [ "$nice" != 0 ] || scontrol update jobid="$task" nice=-50000 || true
  done
  # A controller that was killed may start a task where it runs already. Slurm ends both copies, and lets nothing begin on
  # that node any more. Nothing speaks against it: the next task there ends what is left of others.
  sinfo -h -N -t drain -o '%N %E' 2>/dev/null | while read -r node reason; do
    [ "$reason" != "Duplicate jobid" ] || scontrol update nodename="$node" state=undrain || true
  done
}

call() {
  settings
  environment
  "$@"
}

ranges() {
  awk 'function put() { printf "%s%s", comma, (a == b ? a : a "-" b); comma = "," }
    NR == 1 { a = b = $1; next } $1 == b + 1 { b = $1; next } { put(); a = b = $1 } END { if (NR) { put(); print "" } }'
}

submit() {
  # submit NAME SCRIPT NUMBER,NUMBER... [OPTION...]: what is queued already stays; one of several callers at a time.
  settings
  environment
  exec 9>"$here/submit.lock"
  flock 9
  local queued missing
  queued=$(squeue -h -r --name="$1" -o %K)
  # As ranges: sbatch refuses a list of some thousand numbers.
  missing=$(tr , '\n' <<<"$3" | grep -vxF -f <(printf '%s\n' "${queued:-none}") | sort -n | ranges) || true
  [ -n "$missing" ] || return 0
  # Nothing of this environment is for the task: its machine has its own.
  env -i PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" SLURM_CONF="$SLURM_CONF" HOME="${HOME:-/root}" \
    sbatch --parsable --requeue --nodes=1 --exclusive --job-name="$1" --array="$missing" --chdir=/ \
    --output=/dev/null "${@:4}" "$2"
}

lost() {
  # lost NODE INCARNATION: unless the node has come back with another machine meanwhile.
  settings
  environment
  scontrol show node "$1" | grep -qE "Comment=$2( |$)" || return 0
  scontrol update nodename="$1" state=down reason=preempted
}

nodes() {
  settings
  environment
  date +%s
  SLURM_TIME_FORMAT=%s scontrol -o show nodes
}

drain() {
  # drain NODE INCARNATION: the mark is that machine's, so that a later one of this name is not bound by it.
  settings
  environment
  scontrol update nodename="$1" state=drain reason="tpuctl-idle-g$2"
  date +%s
  SLURM_TIME_FORMAT=%s scontrol -o show node "$1"
}

returning() {
  # returning NODE INCARNATION: unless a later machine has come. Down first: no task may begin before that one's slurmd.
  local comment
  settings
  environment
  comment=$(scontrol -o show node "$1" | grep -oE 'Comment=[0-9]+' | grep -oE '[0-9]+$') || return 0
  [ "$comment" -le "$2" ] || return 0
  scontrol update nodename="$1" state=down reason=returning
  scontrol update nodename="$1" state=undrain
}

undrain() {
  settings
  environment
  scontrol update nodename="$1" state=undrain
}

forget_drain() {
  # The node was drained and its machine deleted because it had nothing to do; this is a later machine.
  local reason
  reason=$(scontrol -o show node "$FLEET_NODE" | grep -oE 'Reason=tpuctl-idle-g[0-9]+' | grep -oE '[0-9]+$') || return 0
  [ "$reason" -lt "$TPUCTL_INCARNATION" ] || return 0
  # Down first: no task may begin here before this machine's slurmd has come.
  scontrol update nodename="$FLEET_NODE" state=down reason=returning
  scontrol update nodename="$FLEET_NODE" state=undrain
}

leave() {
  # Asked to stop: at a preemption the tasks go back into the queue while this machine still saves.
  leaving=1
  local preempted
  preempted=$(python3 -E -c 'import os, urllib.request as u
url = "http://%s/computeMetadata/v1/instance/preempted" % os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
print(u.build_opener(u.ProxyHandler({})).open(u.Request(url, headers={"Metadata-Flavor": "Google"}), timeout=5).read().decode())') || true
  [ "$preempted" != TRUE ] || scontrol update nodename="$FLEET_NODE" state=down reason=preempted || true
  [ -z "$slurmd" ] || kill "$slurmd" 2>/dev/null || true
}

locate() {
  # Learn from the bucket where the Slurm controller is, and its key; true when something has changed.
  local before=$FLEET_HEAD changed=1
  bucket head get address "$here/address.new" || return 1
  FLEET_HEAD=$(cat "$here/address.new")
  [[ $FLEET_HEAD =~ ^[0-9A-Fa-f.:]+$ ]] || fail "head/address in the bucket holds no address"
  # Also for the next start of this script.
  cmp -s "$here/address.new" "$here/address" || old_steps=$(steps)
  mv -f "$here/address.new" "$here/address"
  ! fetch_key || changed=0
  [ "$FLEET_HEAD" = "$before" ] || changed=0
  return "$changed"
}

steps() {
  # The processes of this machine that each hold one task.
  local process program
  program=$(readlink -f "$tree/usr/sbin/slurmstepd")
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe" 2>/dev/null)" != "$program" ] || echo "${process#/proc/}"
  done
}

start_slurmd() {
  # Tasks go on while slurmd is away, and the new one takes them over: also from an agent that was killed.
  local before tries
  before=$(cat "$here/slurmd.pid" 2>/dev/null) || true
  for ((tries = 0; tries < 100; tries++)); do
    kill "${before:-none}" 2>/dev/null || break
    sleep 0.1
  done
  # The mark by which an agent finds its job's processes: tasks must outlive a restart of slurmd.
  env -u TPUCTL_JOB slurmd -D -N "$FLEET_NODE" -d "$(command -v slurmstepd)" &
  slurmd=$!
}

end_old_steps() {
  # Those that began under a controller elsewhere report the end of their task there, for an hour: true when one had
  # to be ended. Slurm then starts its task again, which finds that it has ended, or goes on.
  local step ended=1 still=
  for step in $old_steps; do
    [ -e "/proc/$step" ] || continue
    if [ -z "$(cat /proc/"$step"/task/*/children 2>/dev/null)" ]; then
      kill -9 "$step" 2>/dev/null || true
      ended=0
    else
      still="$still $step"
    fi
  done
  old_steps=$still
  return "$ended"
}

node() {
  # While the controller is away tasks go on. When it comes back slurmd registers anew: a controller that was killed
  # may remember a task that has never begun.
  local own=${TPUCTL_WORKER_HOSTS%%,*} slurmd='' leaving='' old_steps='' begun='' began follower=''
  mkdir -p "$here/log"
  # Slurm knows one machine of each node. The others, and this one for tasks that begin elsewhere, follow by the bucket.
  [ "$TPUCTL_WORKER_ID" = 0 ] || exec python3 -E "$TPUCTL_ROOT/agent.pyz" follow
  unpack "${TPUCTL_DATA_DIR:?}/engine/$FLEET_ENGINE" "$here/tree-${FLEET_ENGINE:6:12}"
  environment
  trap leave TERM
  FLEET_HEAD=
  while [ -z "$leaving" ]; do
    kill -0 "${follower:-none}" 2>/dev/null || { python3 -E "$TPUCTL_ROOT/agent.pyz" follow & follower=$!; }
    began=
    [ -z "$FLEET_HEAD" ] || began=$(scontrol show config 2>/dev/null | sed -n 's/^BOOT_TIME *= *//p') || true
    if [ -z "$began" ]; then
      if locate; then
        configure head
        authenticate
        continue
      fi
      [ -z "$FLEET_HEAD" ] || authenticate
      echo "the Slurm controller at $FLEET_HEAD:$FLEET_PORT does not answer"
    elif [ "$began" != "$begun" ] || end_old_steps; then
      if scontrol update nodename="$FLEET_NODE" nodeaddr="$own" comment="$TPUCTL_INCARNATION" \
        availablefeatures="$ZONE" activefeatures="$ZONE"; then
        [ "$began" = "$begun" ] || echo "node $FLEET_NODE at $own, its Slurm controller at $FLEET_HEAD"
        forget_drain
        start_slurmd
        begun=$began
      fi
    fi
    # Not `sleep` alone: a trap waits for the command in front of it.
    sleep 5 &
    wait $! || true
    [ -z "$slurmd" ] || kill -0 "$slurmd" 2>/dev/null || break
  done
  [ -z "$slurmd" ] || wait "$slurmd"
}

case ${1:-} in
  head) head_ ;;
  engine | database | cron | keep | node | nodes) "$1" ;;
  call | submit | lost | drain | returning | undrain) "$@" ;;
  *) fail "there is no command '${1:-}'" ;;
esac
