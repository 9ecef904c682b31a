#!/bin/bash
# Compare in a Slurm array: each task measures a shard, and a job after all of them merges the parts. It needs a folder
# that all nodes see. Say what `compare` takes:
#
#   SHARDS=7 PARTS=parts bash slurm.sh reference model-fp16.onnx --samples inputs.npz --batch-size 8 --precision fp16
#
# The same command again makes only the parts that are missing.
#SBATCH --job-name=parity
#SBATCH --output=parity-%j.log
set -eu
export PARTS="${PARTS:-parts}" SHARDS="${SHARDS:-7}"
case "${STEP-}" in
  shard)
    part="$PARTS/part-$SLURM_ARRAY_TASK_ID.json"
    convert-and-validate compare "$@" --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --out "$part"
    ;;
  merge)
    convert-and-validate merge "$PARTS"/part-*.json --json "$PARTS/result.json"
    ;;
  *)
    mkdir -p "$PARTS"
    # The jobs get the variables of this shell.
    array=$(STEP=shard sbatch --parsable --array="1-$SHARDS" "$0" "$@")
    STEP=merge sbatch --dependency="afterok:${array%%;*}" "$0"
    ;;
esac
