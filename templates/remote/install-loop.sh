# Install the loop whose tar (named by its sha256, $2) lies in controller/, and stop the one before. $3 is the scope
# that it needs. Status 78 is NO_SCOPE in engine/loop/loop_on_vm.py.
set -euo pipefail
umask 077
root=$1 base=$1/controller digest=$2 scope=$3
scopes=$(python3 -E - <<'END'
import json, os, urllib.request
url = "http://%s/computeMetadata/v1/instance/service-accounts/default/?recursive=true"
url %= os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
print(*json.load(direct.open(request, timeout=20))["scopes"], sep="\n")
END
)
if ! grep -qxF "$scope" <<<"$scopes"; then
  rm -f "$base/$digest.tar"
  exit 78
fi
for ((tries = 0; tries < 600; tries++)); do
  [ ! -s "$root/machine.env" ] || break
  sleep 0.2
done
if [ ! -d "$base/$digest" ]; then
  rm -rf "$base/.fresh"
  mkdir "$base/.fresh"
  tar -xf "$base/$digest.tar" -C "$base/.fresh" --no-same-owner
  sync -f "$base/.fresh"
  mv -T "$base/.fresh" "$base/$digest"
fi
rm -f "$base"/*.tar
if [ -x "$base/current/run-watch" ]; then
  "$base/current/run-watch" stop
fi
ln -sfn "$digest" "$base/.current"
mv -fT "$base/.current" "$base/current"
for old in "$base"/*/; do
  name=$(basename "$old")
  if [ "${#name}" = 64 ] && [ "$name" != "$digest" ]; then
    rm -rf "$old"
  fi
done
