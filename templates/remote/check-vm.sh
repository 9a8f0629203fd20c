# Check that a VM has what our scripts need, and is not of a deployment other than $2. cron is needed to start them
# after a reboot.
set -u
root=$1 deployment=$2
for tool in python3 flock setsid timeout tee; do
  command -v "$tool" >/dev/null || { echo "there is no $tool on it" >&2; exit 1; }
done
python3 -E -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
  { echo "it has $(python3 --version), needed is Python 3.8" >&2; exit 1; }
case ${TPUCTL_HAS_CRON:-} in
  yes) ;;
  no) echo "there is no cron on it" >&2; exit 1 ;;
  *) grep -qsxE 'crond?' /proc/[0-9]*/comm || { echo "cron does not run on it" >&2; exit 1; } ;;
esac
other=$(sed -n 's/^TPUCTL_DEPLOYMENT=//p' "$root/job.env" 2>/dev/null | tr -d "'")
[ -z "$other" ] || [ "$other" = "$deployment" ] ||
  { echo "$root is of the deployment $other: rename that folder" >&2; exit 1; }
