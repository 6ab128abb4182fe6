// kind = "train": a recipe trained on text, as crest train does it, for its loss, its speed and its wait for data.
#pragma once
#include "cli/lab_recipe.h"
#include "train/run.h"

namespace crest {

class TrainCell : public RecipeCell {
 public:
  TrainCell(const lab::Experiment& e, lab::CellSpec spec, const Device& device, int64_t limit);
  std::string key() const override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;
  void add_flags(CLI::App& app) override;
  void check_flags(const CLI::App& app) const override;
  BenchTask task() const override;

 private:
  struct Trained;
  void columns(const Trained& trained, lab::Row& row) const;

  TrainOptions training_;
  std::string data_, tokenizer_;  // as given; "": generated text
  std::string trained_by_;        // the settings that are none of the recipe
};

}  // namespace crest
