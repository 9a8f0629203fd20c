# A training program in miniature, in bash: counts steps, saves with a marker, resumes, saves once more on SIGTERM.
# It needs nothing but the programs of tests/kit/images.py, and says what it sees of the machine around it.
step=0 asked=
for marker in "$TPUCTL_CHECKPOINT_DIR"/step-*/COMPLETE; do
  if [ -e "$marker" ]; then step=${marker%/COMPLETE} step=$((10#${step##*/step-})); fi
done
trap 'asked=yes' TERM

save() {
  local folder
  printf -v folder '%s/step-%06d' "$TPUCTL_CHECKPOINT_DIR" "$step"
  mkdir -p "$folder"
  echo "$step" >"$folder/state"
  : >"$folder/COMPLETE"
}

echo "begin after $step, asked for ${TPUCTL_RESUME_STEP:-none}"
echo "image: $(cat /etc/image-only), python3: $(type -P python3 || echo none), host: $(ls "${HIDDEN:-/nowhere}" 2>&1)"
echo "setup: $(cat /etc/set-up 2>/dev/null || echo none), secret: ${SECRET-none}"
while ((step < ${STEPS:-100000})); do
  step=$((step + 1))
  sleep 0.02
  printf '{"step": %d}' "$step" >"$TPUCTL_PROGRESS_FILE.new"
  mv "$TPUCTL_PROGRESS_FILE.new" "$TPUCTL_PROGRESS_FILE"
  echo "step $step"
  if ((step % 10 == 0)) || [ -n "$asked" ]; then save; fi
  if [ -n "$asked" ]; then
    echo "saved on request"
    exit 143
  fi
done
echo trained
