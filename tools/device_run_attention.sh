#!/usr/bin/env bash
# Measures attention on a machine with a GPU, from a bundle built elsewhere: tools/device_run_attention.sh [PART...]
#
# Before, here:     tools/bundle_for_device baton && tools/device_run_attention.sh bundle
#                   (adds the ceilings and the peers to the bundle)
# There, with build/device carried:     tools/device_run_attention.sh tables counters peers summary
#
#     ceilings   workshop/01_ceilings: what the machine can do at most                        40 s     ceilings.json
#     feeding    workshop/02_feeding: bulk and 16-byte copies through shared memory           10 s     feeding.json
#     tables     baton bench attention: W1, W2, W3, then all in fp8                          90 s     attention.json, attention_fp8.json
#     free       batch 1, groups, and short prefixes, relay beside paged                      20 s     attention_free.json
#     plans      what was relayed and why                                                     20 s     plans.txt
#     counters   bytes read from L2 and memory by ncu, three shapes, relay and paged          90 s     counters.csv
#     peers      torch_attention.py on the same shapes                                        90 s     torch_attention.csv
#     summary    each line with its goal and its peers, short; plots are made here: tools/plot_attention.py
#
# Without a part: ceilings tables free counters peers summary. Everything goes to $OUT (/tmp/attention without one), the tables
# to the standard output too.
set -uo pipefail
cd "$(dirname "$0")/.."
bundle=build/device
out=${OUT:-/tmp/attention}
mkdir -p "$out"

bundle() {
  nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo -cudart static -Xcompiler -static-libstdc++,-static-libgcc \
    -o $bundle/bin/01_ceilings workshop/01_ceilings.cu
  nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo -cudart static -Xcompiler -static-libstdc++,-static-libgcc \
    -o $bundle/bin/02_feeding workshop/02_feeding.cu
  cp ../shared/peers/torch_attention.py $bundle/
}
bench() {  # by the whole program, or by the one that has this command alone
  local program=(baton bench attention)
  [ -e $bundle/bin/baton ] || program=(attention_bench)
  timeout 240 $bundle/run "${program[@]}" --device cuda "$@"
}

ceilings() { timeout 90 $bundle/run 01_ceilings; }
feeding() { timeout 60 $bundle/run 02_feeding; }
tables() {
  bench --json "$out/attention.json"
  local status=$?
  echo; echo "fp8 keys and values"
  bench --kv-cache-dtype float8_e4m3 --json "$out/attention_fp8.json" | grep -E '^(W[123]|\|)' | cut -d'|' -f1-10
  return $status
}
free() {
  bench --requests 1,2,8 --shared 64,512,4096 --own 128 --json "$out/attention_free.json" | grep -E '^(free|\|)' | cut -d'|' -f1-10
  bench --requests 64 --groups 8 --shared 2048 --own 256 | grep -E '^\|' | cut -d'|' -f1-10
}
plans() {
  bench --runs 1 --explain --tables W2,W3 > "$out/plans.txt" && grep -cE '^ *node' "$out/plans.txt"
}
counters() { timeout 200 python3 tools/attention_counters.py --bundle $bundle --csv "$out/counters.csv"; }
peers() {
  timeout 200 python3 $bundle/torch_attention.py > "$out/torch_attention.csv"
  echo "peers: $(wc -l < "$out/torch_attention.csv") lines, $(grep -c failed "$out/torch_attention.csv") failed"
}
summary() {
  python3 tools/plot_attention.py "$out/attention.json" --torch "$out/torch_attention.csv" --fp8 "$out/attention_fp8.json" --summary
}

if [ "${1:-}" = bundle ]; then bundle; exit; fi
[ $# -gt 0 ] || set -- ceilings tables free counters peers summary
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw --format=csv
failed=
for part in "$@"; do
  case $part in
    ceilings | feeding | tables | free | plans | counters | peers | summary) ;;
    *) echo "device_run_attention: no part is called $part" >&2; exit 2 ;;
  esac
  echo; echo "== $part"
  begin=$SECONDS
  $part 2>&1 | tee -a "$out/log.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || failed+=" $part"
  echo "== $part: $((SECONDS - begin)) s"
done
nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader
echo "failed:${failed:- none}"
[ -z "$failed" ]
