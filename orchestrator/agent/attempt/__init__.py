"""Run one attempt of the job: prepare, run, track its progress, make the last commit; then restart or finish."""
