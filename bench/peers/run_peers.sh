#!/bin/bash
# Runs peers of Baton on one GPU, one step after the other, and leaves JSON and a log in $OUT.
#
#   OUT=FOLDER bench/peers/run_peers.sh --pack FOLDER[:FOLDER] [--seconds 540] [--side-by-side KV_GB] [--engine-flags FLAGS] [--keep-caches] STEP...
#
# A step:   vllm:SHAPE:POINT,POINT          (vllm, vllm-cascade, vllm-no-prefix-caching, vllm-flashinfer; vllm-tp2, vllm-tp4 on so many GPUs)
#           vllm:SHAPE:POINT,POINT:int4     weights in a form of --quantization: none, fp8, int4 (and vllm-marlin)
#           vllm-fine:SHAPE:POINT,POINT     models with recurrent layers: prompts match at every 16th token
#           serve-vllm:SHAPE:SHARED:RATES   its server and `baton serve` in turn under Poisson arrivals; BATON_BINARY is the program
#           sglang:SHAPE:POINT,POINT        (sglang, sglang-flashinfer, sglang-no-radix-cache)
#           transformers:POINT,POINT        continuous batching of Transformers
#           torch:W1,W2                     PyTorch's attention
#           flashinfer:W1,W2,W3             FlashInfer's attention; compiles first
#           fa3:W2,W3                       FlashAttention-3's, from vLLM
#
# The folders hold the archives of engine_pack.py and flashinfer_pack.py, and perhaps data.tar.xz, with the folder data
# for steps that need ShareGPT's lengths or a tokenizer (else BATON_TEST_DATA). They are unpacked once below /tmp; several
# calls, each with its own CUDA_VISIBLE_DEVICES, may run at once. A step that fails or that runs out of time is said in
# the log, and the next one begins. Steps left when the time is over are named.
# --side-by-side loads the engines of all steps at once, each with so many GB for keys and values; they measure one after
# the other (vllm_engine.py --turn). It is for vllm steps: five engines load in the time of one.
# --engine-flags gives flags to each vllm_engine.py: "--or vllm-triton --runs 2 --no-difference".
# --keep-caches packs what the engines of this GPU compiled (vLLM's graphs, Inductor's and Triton's kernels) into
# $OUT/peers_cache_gpuN.tar.xz. In the pack of a later call on the same GPU number it is unpacked first, and steps of the
# same kind, shape and weights start with it: with 16 cores vLLM compiles Qwen3.5-27B for up to 270 s.
set -u
here=$(cd "$(dirname "$0")" && pwd)
pack= seconds=540 kv_gb= engine_flags=() keep_caches=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --keep-caches) keep_caches=1; shift; continue ;;
    --pack) pack=$2 ;;
    --seconds) seconds=$2 ;;
    --side-by-side) kv_gb=$2 ;;
    --engine-flags) read -ra engine_flags <<<"$2" ;;
    *) echo "run_peers.sh: $1 is unknown" >&2; exit 2 ;;
  esac
  shift 2
done
[[ -n $pack ]] || { echo "run_peers.sh: --pack is missing" >&2; exit 2; }
IFS=: read -ra packs <<<"$pack"
for folder in "${packs[@]}"; do
  [[ -d $folder ]] || { echo "run_peers.sh: --pack $folder is no folder" >&2; exit 2; }
done
[[ -n ${OUT:-} ]] || { echo "run_peers.sh: OUT names no folder for results" >&2; exit 2; }
(( $# )) || { echo "run_peers.sh: no step given" >&2; exit 2; }

gpu=${CUDA_VISIBLE_DEVICES:-0}
site=/tmp/site
log=$OUT/peers_gpu$gpu.log
mkdir -p "$OUT" "$site"
say() { echo "$(date +%T) gpu$gpu $*" | tee -a "$log"; }

unpack() {
  exec 9>"$site/.lock"
  flock 9
  local archive name folder
  for archive in $(find "${packs[@]}" -maxdepth 1 -name '*.tar.xz' | sort); do
    name=$(basename "$archive" .tar.xz) folder=$site
    [[ $name == *flashinfer* ]] && folder=/tmp/$name
    [[ $name == sglang* ]] && folder=/tmp/site_sglang
    [[ $name == peers_cache* ]] && folder=/tmp
    [[ -e $archive && ! -e $site/.$name.done ]] || continue
    mkdir -p "$folder"
    tar -xJf "$archive" -C "$folder" --no-same-owner || { say "$archive does not unpack"; exit 1; }
    touch "$site/.$name.done"
  done
  exec 9>&-
}
unpack
say "unpacked after $SECONDS s; $(nvidia-smi -i "$gpu" --query-gpu=name,driver_version,memory.used --format=csv,noheader 2>&1 | head -1)"

export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
export BATON_TEST_DATA=${BATON_TEST_DATA:-$site/data}
export FLASHINFER_WORKSPACE_BASE=/tmp/peers_cache/flashinfer FLASHINFER_CUDA_ARCH_LIST=9.0a MAX_JOBS=${MAX_JOBS:-6}

do_step() {  # STEP INDEX
  local step=$1 left=$((seconds - SECONDS)) cache kind first second third command path begin code
  if ((left < 20)); then
    say "LEFT OUT, no time: $step"
    return
  fi
  IFS=: read -r kind first second third <<<"$step"
  # A cache for each engine: two that compile the same graph at once must not share files.
  cache=/tmp/peers_cache/$gpu/$kind.$first${third:+.$third}
  export VLLM_CACHE_ROOT=$cache/vllm TORCHINDUCTOR_CACHE_DIR=$cache/inductor TRITON_CACHE_DIR=$cache/triton
  case $kind in
    vllm | vllm-*) command=(vllm_engine.py --arm "$kind" --shape "$first" --points "$second" --seconds $((left - 10))
        ${third:+--quantization "$third"} ${kv_gb:+--kv-gb "$kv_gb" --turn "$OUT/.turn_gpu$gpu"} "${engine_flags[@]}") ;;
    serve-vllm | serve-vllm-*)
      command=(vllm_server.py --baton "${BATON_BINARY:-build/cuda-release/bin/baton}" --arm "${kind#serve-}" --shape "$first"
        --shared "$second" --rates "$third" --seconds $((left - 10))) ;;
    sglang | sglang-*) command=(sglang_engine.py --arm "$kind" --shape "$first" --points "$second" --seconds $((left - 10))) ;;
    transformers) command=(transformers_batching.py --points "$first" --seconds $((left - 10))) ;;
    torch) command=(torch_attention.py --tables "$first") ;;
    flashinfer) command=(flashinfer_attention.py --library flashinfer --tables "$first" --seconds $((left - 10))) ;;
    fa3) command=(flashinfer_attention.py --library fa3 --tables "$first" --seconds $((left - 10))) ;;
    *) say "$step: no such step"; return ;;
  esac
  # FlashInfer and SGLang stand in folders of their own: vLLM's other arms must not find them.
  path=$site
  [[ $kind == vllm-flashinfer ]] && path=/tmp/flashinfer:$site
  [[ $kind == sglang* ]] && path=/tmp/site_sglang:/tmp/flashinfer:$site
  [[ $kind == flashinfer ]] && path=$([[ -d /tmp/site_flashinfer ]] && echo /tmp/site_flashinfer || echo "/tmp/flashinfer:$site")
  say "begins: $step"
  begin=$SECONDS
  PYTHONPATH=$path timeout -k 10 "$left" python3 "$here/${command[0]}" "${command[@]:1}" --results "$OUT" >>"$log" 2>&1
  code=$?
  say "ended with $code after $((SECONDS - begin)) s: $step"
  ((code == 0)) || tail -n 4 "$log" | cut -c1-300
}

for step in "$@"; do
  if [[ -n $kv_gb && $step != vllm* ]]; then
    say "$step: only vllm steps run side by side"
    continue
  fi
  if [[ -n $kv_gb ]]; then do_step "$step" & else do_step "$step"; fi
done
wait
rm -f "$OUT/.turn_gpu$gpu"
if [[ -n $keep_caches && -d /tmp/peers_cache/$gpu ]]; then
  tar -C /tmp -c "peers_cache/$gpu" | xz -T0 -3 >"$OUT/peers_cache_gpu$gpu.tar.xz"
  say "caches: $(stat -c %s "$OUT/peers_cache_gpu$gpu.tar.xz") bytes"
fi
grep -E "^(vllm|sglang|transformers|FlashAttention|FlashInfer|cuDNN|eager|torch relay|no sharing|compiled)" "$log" | cut -c1-220
say "all done after $SECONDS s"
