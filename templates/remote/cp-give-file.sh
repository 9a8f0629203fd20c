# Print the sha256 of the file $2, then its content; the caller refuses a file that changed in between.
# A relative path is relative to the source folder. Status 4 is MISSING, 6 is FOLDER in
# ssh/transfer/copy.py.
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
[ -e "$2" ] || { echo "there is no $2 in $PWD" >&2; exit 4; }
[ -d "$2" ] && { echo "$2 is a folder" >&2; exit 6; }
[ -f "$2" ] || { echo "$2 is not a plain file" >&2; exit 1; }
sum=$(sha256sum <"$2")
echo "${sum%% *}"
cat -- "$2"
