// What a user asked for: model, sizes and settings. Each is a row of a table of settings, and each
// setting is read by its own pass only.
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
  std::string model_source;       // --model as given: preset, file or folder; "" if a program made the recipe
  bool vocab_given = false;       // --vocab was given: it overrides the data's vocabulary
  int64_t batch = 8;              // sequences per micro batch
  int64_t seq = 0;                // sequence length; 0: the model's context
  int64_t grad_accumulation = 1;  // micro steps per step
  int ranks = 1;                  // processes, one rank each
  int data_parallel = 1;          // virtual ranks: threads of one process
  Mesh mesh;                      // with axes besides data: how the ranks of either kind are arranged

  std::string precision = "auto";   // resolved for the device
  std::string policy = "pure";      // pure, autocast
  std::string grad_dtype = "fp32";  // fp32, bf16 (policy pure)
  std::string attention = "flash";  // flash, naive
  std::string fusion = "on";
  int64_t pad_vocab = 128;
  std::string recompute = "auto";  // resolved for the device

  std::string optimizer = "adamw";  // the list is in passes/optimizer.cpp
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double lr = 0;              // peak, to which --lr-embedding and others relate; 0: default_learning_rate()
  double clip = 1.0;          // 0: off
  double loss_scale = 65536;  // fp16: initial dynamic loss scale

  // Settings that passes declare themselves (passes/pass.h): name -> value.
  std::map<std::string, std::string> pass_settings;

  std::vector<std::pair<std::string, std::string>> kernels;  // OP=PATTERN
  std::vector<std::string> disabled_passes;
  bool deterministic = false;

  // How a GPU gets its work; results are bitwise identical.
  std::string graphs = "on", programmatic_launch = "on", nvtx = "off";

  int64_t seq_length() const { return seq > 0 ? seq : model.context; }
  // Ranks of either kind.
  int all_ranks() const { return ranks * data_parallel; }
  // How they are arranged. Without `mesh`, all are on the data axis.
  Mesh layout() const { return mesh == Mesh() ? Mesh{{Axis::data, all_ranks()}} : mesh; }
  // Parts of the global batch that are computed at once: the ranks of other axes share one.
  int data_ranks() const { return layout().size(Axis::data); }
  // Ranks with the same weights: all of them have addends of the gradients. Ranks along the axis
  // context share the tokens of the samples.
  int copies() const { return layout().size(copy_axes); }
  static constexpr Axes copy_axes = Axis::data | Axis::context;
  int64_t tokens_per_step() const { return batch * seq_length() * grad_accumulation * data_ranks(); }
};

// Throws usage errors for settings that conflict (a sequence longer than the context). Each single
// value is checked where it is set (settings/setting.h).
void validate(const Recipe& recipe);

// The settings of the model and the amount of data per step.
const std::vector<Setting>& model_settings();

}  // namespace crest
