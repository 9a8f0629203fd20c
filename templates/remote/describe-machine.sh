# Describe a machine in words and numbers, without names, addresses or keys.
say() { printf '%s=%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1 && echo yes || echo no; }
. /etc/os-release 2>/dev/null
say os "$ID-$VERSION_ID"; say kernel "$(uname -r | cut -d. -f1,2)"
say python "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none)"
say ensurepip "$(python3 -c 'import ensurepip' 2>/dev/null && echo yes || echo no)"
say pip "$(python3 -m pip --version >/dev/null 2>&1 && echo yes || echo no)"
for one in cron systemctl apt-get gcloud git curl docker; do say "$one" "$(has $one)"; done
say systemd "$([ -d /run/systemd/system ] && echo yes || echo no)"
say dpkg-lock "$(fuser /var/lib/dpkg/lock-frontend >/dev/null 2>&1 && echo held || echo free)"
say files "$(ulimit -n)"; say accelerators "$(ls -d /dev/accel* /dev/vfio/[0-9]* 2>/dev/null | wc -l)"
say disk-gb "$(df -BG --output=size / 2>/dev/null | tail -1 | tr -dc 0-9)"
say cpus "$(nproc 2>/dev/null)"; say sudo "$(sudo -n true 2>/dev/null && echo yes || echo no)"
