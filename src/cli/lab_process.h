// Cells whose recipe runs in a process of its own: crest bench or crest profile (the kind's name) with other libraries
// or environment variables, which a process reads at its start.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/lab_recipe.h"
#include "measure/external.h"

namespace crest {

class ProcessCell : public RecipeCell {
 public:
  using RecipeCell::RecipeCell;
  // Whether a setting of an experiment asks for it; then all of its cells run so, or they could not be compared.
  static bool is_wanted(const lab::CellSpec& spec);
  std::string identity() const override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;

 private:
  std::vector<std::string> arguments(const LabContext& context, const std::string& model_file) const;
  nlohmann::ordered_json document(const LabContext& context) const;

  std::vector<Variable> variables_;  // of the environment
  std::string place_;                // of libraries, as the file says it
  std::vector<std::string> folders_;
};

}  // namespace crest
