#!/usr/bin/env bash
# Tests the engine on a machine with a GPU and compares two versions there, from bundles built elsewhere.
#
# Before, here:   BATON_BUNDLE=build/device tools/bundle_for_device baton $(cd build/cuda-release/tests && ls kernels_*_test model_*_test engine_*_test)
#                 BATON_BUILD=OLD/build/cuda-release BATON_BUNDLE=build/device-before tools/bundle_for_device baton
# There, with the bundles carried:     tools/device_run_engine.sh [PART...]
#
#     tests       every test file of the bundle, BATON_REQUIRE=cuda: a test that finds no GPU fails            60 to 200 s
#     sanitizer   compute-sanitizer memcheck over small operations, norms, sampling and captured steps         60 s
#     bits        tools/compare_answers --device cuda between the two bundles                                  90 s
#     decode      baton bench decode of Llama-3-8B and Llama-2-7B, before and after in turn                    240 s
#
# Without a part: tests bits decode. Everything goes to $OUT (/tmp/engine without one).
set -uo pipefail
cd "$(dirname "$0")/.."
bundle=build/device
before=build/device-before
out=${OUT:-/tmp/engine}
rounds=${ROUNDS:-2}
mkdir -p "$out"

tests() {
  local name passed failed=0 n=0
  for name in $(cd "$bundle/bin" && ls -d -- *_test *_test.of 2> /dev/null); do
    name=${name%.of}
    n=$((n + 1))
    BATON_REQUIRE=cuda OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive timeout 240 "$bundle/run" "$name" --gtest_brief=1 \
      > "$out/$name.log" 2>&1 || { failed=$((failed + 1)); echo "FAILED $name"; tail -15 "$out/$name.log"; }
    passed=$(grep -oE '^\[  PASSED  \] [0-9]+' "$out/$name.log" | grep -oE '[0-9]+$')
    echo "$name ${passed:-?} passed, $(grep -c 'SKIPPED \]' "$out/$name.log") skipped lines"
  done
  cat "$out"/*_test.log > "$out/tests.log"
  rm -f "$out"/*_test.log
  echo "tests: $n files, $failed failed"
}
sanitizer() {
  local name
  for name in kernels_small_ops_test kernels_rope_append_test engine_step_captured_steps_test; do
    [ ! -e "$bundle/bin/$name" ] && [ ! -e "$bundle/bin/$name.of" ] || BATON_UNDER="compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1" timeout 200 "$bundle/run" "$name" --gtest_brief=1 \
      > "$out/sanitizer_$name.log" 2>&1
    echo "memcheck $name: exit $?, $(grep -E 'ERROR SUMMARY' "$out/sanitizer_$name.log" | tail -1)"
  done
}
bits() { python3 tools/compare_answers "$before/run-baton" "$bundle/run-baton" --device cuda --quick; }
decode() {
  local shape round arm
  for shape in ${SHAPES:-llama-3-8b llama-2-7b}; do
    for round in $(seq "$rounds"); do
      for arm in "$before" "$bundle"; do
        timeout 150 "$arm/run" baton bench decode --device cuda --shape "$shape" --shared 2048 --own 160 --new 64 --requests 1,32,128 \
          --arms relay,paged --runs 3 --kv-cache-memory-bytes 60000000000 > "$out/decode.txt" 2>&1 || tail -3 "$out/decode.txt"
        grep -E '^\| *(1|32|128) ' "$out/decode.txt" | sed "s|^|$shape round $round $(basename "$arm") |"
      done
    done
  done | tee "$out/decode_all.txt"
}
for where in "$before" "$bundle"; do
  [ ! -d "$where" ] || { printf '#!/bin/sh\nexec "%s/run" baton "$@"\n' "$PWD/$where" > "$where/run-baton" && chmod +x "$where/run-baton" "$where/run"; }
done
[ $# -gt 0 ] || set -- tests bits decode
for part in "$@"; do
  echo "== $part"
  "$part"
done
