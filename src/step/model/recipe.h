// What the user requested: model, sizes and settings. Each is a row in a table of settings. Each
// setting is read in its own pass only.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "program/mesh.h"
#include "settings/setting.h"

namespace crest {

struct Recipe {
  ModelConfig model;
  std::string model_source;       // --model as given: preset, file or folder; "": a program made the recipe
  bool vocab_given = false;       // --vocab was given: it overrides the data's vocabulary
  int64_t batch = 8;              // sequences per micro batch
  int64_t seq = 0;                // sequence length; 0: the model's context
  int64_t grad_accumulation = 1;  // micro steps per step
  int ranks = 1;                  // processes, one rank each
  int data_parallel = 1;          // virtual ranks: threads of one process
  Mesh mesh;                      // arrangement of the ranks, if it has axes besides data

  std::string precision = "auto";   // resolved for the device
  std::string policy = "pure";      // pure, autocast
  std::string grad_dtype = "fp32";  // fp32, bf16 (policy pure)
  std::string attention = "flash";  // flash, naive
  std::string fusion = "on";
  int64_t pad_vocab = 128;
  std::string recompute = "auto";  // resolved for the device

  std::string optimizer = "adamw";  // listed in passes/optimizer.cpp
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double lr = 0;              // peak; other rates (--lr-embedding, ...) are relative to it; 0: default_learning_rate()
  double clip = 1.0;          // 0: off
  double loss_scale = 65536;  // fp16: initial dynamic loss scale

  // Settings declared by passes (passes/pass.h): name -> value.
  std::map<std::string, std::string> pass_settings;

  std::vector<std::pair<std::string, std::string>> kernels;  // OP=PATTERN
  std::vector<std::string> disabled_passes;
  bool deterministic = false;

  // How a GPU receives its work. Results are bitwise identical.
  std::string graphs = "on", programmatic_launch = "on", nvtx = "off";

  int64_t seq_length() const { return seq > 0 ? seq : model.context; }
  // Tokens of a sequence in Programs. Ranks that share sequences have two equal chunks each, so
  // tokens without a target may follow the sequence's own.
  int64_t padded_seq() const {
    const int64_t sharing = layout().size(Axis::context), unit = sharing == 1 ? 1 : 2 * sharing;
    return (seq_length() + unit - 1) / unit * unit;
  }
  // Processes times virtual ranks.
  int all_ranks() const { return ranks * data_parallel; }
  // The arrangement of the ranks. Without `mesh`, all are on the data axis.
  Mesh layout() const { return mesh == Mesh() ? Mesh{{Axis::data, all_ranks()}} : mesh; }
  // Parallel parts of the global batch. Ranks along other axes share a part.
  int data_ranks() const { return layout().size(Axis::data); }
  // Ranks with the same weights: all of them have addends of the gradients. Ranks along the axis
  // context share the tokens of the samples.
  int copies() const { return layout().size(copy_axes); }
  static constexpr Axes copy_axes = Axis::data | Axis::context;
  int64_t tokens_per_step() const { return batch * seq_length() * grad_accumulation * data_ranks(); }
};

// Throws a usage error if settings conflict (a sequence longer than the context). Single values are
// checked when they are set (settings/setting.h).
void validate(const Recipe& recipe);

// Settings of the model and of the data per step.
const std::vector<Setting>& model_settings();

}  // namespace crest
