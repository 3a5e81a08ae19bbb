#!/usr/bin/env bash
# One call to a machine with GPUs that is there for minutes: the jobs of the plan that are not done yet of this build.
#
#   F=FOLDER O=FOLDER DATA=ARCHIVE [MINUTES=9] [ONLY="11:decode-8b-* 04:*"] [TP_MINUTES=3.2] bench/experiments/one_call.sh
#
# F        bin/ and lib/ of the programs; --resume goes by the hash of these files, so later calls need the very same ones
# O        folder for experiments.log and results.tar.gz; at home `run_all.py --merge results.tar.gz`, then `make report`
# DATA     what workloads.py FOLDER copied, as an archive (tar -C FOLDER -cJf ARCHIVE .)
# ONLY     jobs in place of the plan; without it, where there are two GPUs or more, what needs two of them goes first
# Rows of earlier calls stand in bench/results of this tree; those of a call before on the same machine are in /tmp.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd) begin=$SECONDS
minutes=${MINUTES:-9}
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then gpus=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l); else gpus=$(nvidia-smi -L | wc -l); fi
[ "$gpus" -ge 1 ] || { echo "one_call.sh: nvidia-smi shows no GPU" >&2; exit 1; }
data=/tmp/baton-experiments/data results=/tmp/baton-experiments/results
mkdir -p "$data" "$results" "$O" && tar -C "$data" -xf "$DATA" || exit 1
export BATON_TEST_DATA=$data BATON_MODULE_PATH=$F/lib
(cd "$tree/bench/experiments" && python3 -c '
import pathlib, result_rows, sys
for path in sorted(result_rows.RESULTS.glob("experiment_*.json")):
    result_rows.merge(pathlib.Path(sys.argv[1]) / path.name, path)' "$results") || exit 1
command -v ncu > /dev/null || PATH=$PATH:$(ls -d /opt/nvidia/nsight-compute/* 2> /dev/null | tail -1)

experiments() {  # MINUTES WORDS...
  python3 "$tree/bench/experiments/run_all.py" --baton "$F/bin/baton" --device cuda --gpus "$gpus" --minutes "$1" "${@:2}" \
    --resume --results "$results" --pack "$O/results.tar.gz" >> "$O/experiments.log" 2>&1
}
left() { awk "BEGIN { print $minutes - ($SECONDS - $begin) / 60 }"; }

: > "$O/experiments.log"
set -f  # patterns of jobs are no names of files
if [ -n "${ONLY:-}" ]; then
  experiments "$(left)" --only $ONLY
else
  if [ "$gpus" -ge 2 ]; then
    of_two=$(awk "BEGIN { most = ${TP_MINUTES:-3.2}; left = $(left); print most < left ? most : left }")
    experiments "$of_two" --only 12:decode-*-tp2 12:llama-30b-1024-tp2 12:llama-2-13b-1024-tp2 12:llama-30b-512-tp2
  fi
  experiments "$(left)" --plan "$tree/bench/experiments/h200.plan"
fi
code=$?
grep -vE '^[0-9]{2}:[0-9]{2}:[0-9]{2} ' "$O/experiments.log" | tail -22
echo "one_call.sh: $((SECONDS - begin)) s on $gpus GPUs"
exit $code
