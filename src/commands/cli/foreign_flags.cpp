#include "cli/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace crest {

namespace {

struct ForeignFlag {
  std::vector<const char*> names;  // without dashes; '_' is '-'
  const char* here;                // what to write; its first word is the flag
  const char* note = "";           // where the values differ
};

const std::vector<ForeignFlag>& foreign_flags() {
  static const std::vector<ForeignFlag> all = {
      {{"learning-rate", "max-lr", "peak-lr"}, "--lr"},
      {{"min-learning-rate"}, "--min-lr"},
      {{"batch-size", "per-device-train-batch-size", "micro-batch-size", "train-batch-size", "device-batch-size",
        "per-gpu-train-batch-size", "mbs", "bs"},
       "--batch",
       "It counts the sequences of a micro step on one rank."},
      {{"gradient-accumulation-steps", "gradient-accumulation", "grad-accum", "grad-accum-steps",
        "accumulate-grad-batches", "accumulation-steps"},
       "--grad-accumulation"},
      {{"global-batch-size", "total-batch-size"},
       "--grad-accumulation",
       "A step has batch x grad-accumulation x ranks sequences."},
      {{"max-steps", "num-steps", "max-iters", "train-iters", "iters", "num-iterations", "total-steps", "n-steps"},
       "--steps"},
      {{"num-train-epochs", "num-epochs", "max-epochs", "n-epochs", "epoch"}, "--epochs"},
      {{"max-time", "max-duration", "time-limit"}, "--max-seconds", "It is in seconds."},
      {{"output-dir", "out-dir", "save-dir", "save", "checkpoint-dir", "default-root-dir"}, "--out"},
      {{"overwrite-output-dir"}, "--overwrite"},
      {{"resume-from-checkpoint", "resume-from", "load-checkpoint", "ckpt-path"}, "--resume RUN"},
      {{"model-name-or-path", "pretrained-model-name-or-path", "base-model", "init-from", "pretrained"},
       "--init DIR",
       "--model names the shape of a new model."},
      {{"dataset", "dataset-name", "train-data", "train-file", "data-path", "data-dir", "train-data-path"},
       "--data DIR",
       "DIR is prepared by crest data prepare; a text file needs no flag: crest train FILE."},
      {{"seq-len", "seq-length", "sequence-length", "sequence-len", "block-size", "max-seq-length", "max-seq-len",
        "max-length", "context-length", "cutoff-len", "model-max-length"},
       "--seq"},
      {{"bf16", "bfloat16"}, "--precision bf16"},
      {{"fp16", "float16", "half"}, "--precision fp16"},
      {{"fp8"}, "--precision fp8"},
      {{"tf32"}, "--precision tf32"},
      {{"fp32", "float32"}, "--precision fp32"},
      {{"mixed-precision", "dtype", "torch-dtype", "amp"}, "--precision", "Values: fp32, tf32, bf16, fp16, fp8."},
      {{"gradient-checkpointing", "activation-checkpointing", "checkpoint-activations", "recompute-activations"},
       "--recompute full"},
      {{"weight-decay-rate", "wd"}, "--weight-decay"},
      {{"adam-beta1"}, "--beta1"},
      {{"adam-beta2"}, "--beta2"},
      {{"adam-epsilon", "adam-eps", "epsilon"}, "--eps"},
      {{"max-grad-norm", "grad-clip", "clip-grad", "clip-grad-norm", "gradient-clip-val", "gradient-clipping"},
       "--clip"},
      {{"optim", "optimizer-type"}, "--optimizer"},
      {{"lr-scheduler-type", "lr-scheduler", "lr-decay-style", "scheduler"}, "--schedule"},
      {{"warmup-steps", "num-warmup-steps", "warmup-iters", "lr-warmup-steps", "lr-warmup-iters"}, "--warmup"},
      {{"warmup-ratio"}, "--warmup", "It counts steps."},
      {{"eval-steps", "eval-interval", "eval-every", "val-interval", "val-check-interval", "eval-iters"},
       "--val-every"},
      {{"max-eval-batches", "limit-val-batches"}, "--val-batches"},
      {{"save-steps", "save-interval", "checkpoint-interval", "save-freq"}, "--save-every"},
      {{"save-total-limit", "keep-last"}, "--keep"},
      {{"load-best-model-at-end", "save-best", "keep-best-checkpoint"}, "--keep-best"},
      {{"early-stopping-patience", "early-stopping", "early-stop"}, "--patience"},
      {{"early-stopping-threshold"}, "--min-delta"},
      {{"random-seed", "manual-seed", "data-seed"}, "--seed"},
      {{"dataloader-num-workers", "num-workers", "workers"}, "--loader-threads", "With --prefetch N."},
      {{"nproc-per-node", "num-gpus", "gpus", "world-size", "num-processes"}, "--ranks"},
      {{"tensor-model-parallel-size", "tp", "pipeline-model-parallel-size", "pp"},
       "--mesh",
       "See crest train --help-all."},
      {{"zero-stage", "zero", "fsdp", "deepspeed"},
       "--shard",
       "Values: optimizer, gradients and weights (ZeRO 1, 2 and 3)."},
      {{"attn-implementation", "flash-attn", "use-flash-attention", "flash-attention"}, "--attention"},
      {{"packing-strategy", "sample-packing", "pack"}, "--packing documents"},
      {{"run-name", "wandb-name", "wandb-run-name", "experiment-name"}, "--name"},
      {{"max-new-tokens", "num-tokens", "n-predict", "max-gen-tokens"}, "--max-tokens"},
      {{"temp"}, "--temperature"},
      {{"num-return-sequences", "n-samples"}, "--num-samples"},
      {{"model-path", "checkpoint", "ckpt", "model-dir"}, "--run"},
  };
  return all;
}

}  // namespace

std::string name_here(const std::string& flag, const std::vector<std::string>& known) {
  std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  for (auto& foreign : foreign_flags()) {
    if (std::find(foreign.names.begin(), foreign.names.end(), name) == foreign.names.end()) continue;
    const std::string_view here = foreign.here, own = here.substr(0, here.find(' '));
    if (std::find(known.begin(), known.end(), own) == known.end()) continue;
    return fmt::format("Crest's name is {}.{}{}", here, *foreign.note ? " " : "", foreign.note);
  }
  return "";
}

}  // namespace crest
