// Cells of kind "comm": a collective between ranks, measured by crest comm in processes of their own.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/lab_cell.h"

namespace crest {

// Ranks that are started once and measure all sizes that an experiment has for them.
class CommLaunch {
 public:
  explicit CommLaunch(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  const std::vector<std::string>& arguments() const { return arguments_; }
  void add(int64_t bytes) { sizes_.insert(bytes); }
  // {"row": of this size, "group": what all sizes share}, as crest comm --json prints them. A size that was taken
  // already is measured anew, alone. Throws what crest comm says.
  nlohmann::ordered_json take(int64_t bytes);

 private:
  void launch(std::set<int64_t> sizes);

  std::vector<std::string> arguments_;
  std::set<int64_t> sizes_;                             // not measured yet
  std::map<int64_t, nlohmann::ordered_json> measured_;  // not taken yet
};

class CommCell : public LabCell {
 public:
  using LabCell::LabCell;
  std::string identity() const override;
  // Cells of one operation, backend and number of ranks share a launch.
  void meet(const LabCells& cells) override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;

 private:
  RunRecord begin(LabContext& context, const std::string& grid) const;

  std::string operation_ = "all-reduce", backend_, dtype_ = "fp32";
  int ranks_ = 2;
  int64_t bytes_ = 0;
  std::shared_ptr<CommLaunch> launch_;
};

}  // namespace crest
