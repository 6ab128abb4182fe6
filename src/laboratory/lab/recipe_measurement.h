// Measurements of a recipe: planned (kind "plan"), timed ("bench"), or timed per instruction
// ("profile").
#pragma once
#include <utility>

#include "lab/caching_allocator.h"
#include "lab/measurement.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "profile/profile.h"

namespace crest {

class RecipeMeasurement : public LabMeasurement {
 public:
  using LabMeasurement::LabMeasurement;
  std::string key() const override;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  std::string keys() const override;
  void finish() override;
  // Fills the columns of the plan and [columns]. Before and after run() it handles the record, and
  // recipes that do not fit.
  void measure(LabContext& context, const std::string& grid, lab::Row& row) const override;
  virtual bool runs() const { return true; }
  // Fills columns and closes the record. detail: rows of instructions, for [columns].
  virtual void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
                   Profile& detail) const = 0;

  virtual BenchTask task() const;
  // Changes a recipe setting; false: no such key.
  bool set_setting(const std::string& key, const std::string& value);
  void plan_for(const std::string& device);

  RecipeOptions options_;
  Recipe recipe_;  // resolved after finish()
  BenchPhase phase_ = BenchPhase::step;

 private:
  void resize(Recipe& recipe) const;
  void set_tile(const std::string& value);
  void plan_columns(const CompiledSession& session, lab::Row& row) const;
  void run_recorded(LabContext& context, CompiledSession session, const std::string& grid, lab::Row& row,
                    Profile& detail) const;

  std::vector<std::pair<std::string, std::string>> sizes_;
  lab::AllocatorSettings allocator_;
};

// Columns and record from the output of crest bench, or from a profile. throttled: by sample.
void bench_columns(const BenchTask& task, const nlohmann::ordered_json& result, lab::Row& row);
void record_bench(BenchMeasure& bench, RunRecord& record, const nlohmann::ordered_json& result,
                  const std::vector<bool>& throttled = {});
void profile_columns(const Profile& profile, lab::Row& row);
void record_profile(BenchMeasure& bench, RunRecord& record, const Profile& profile);

class PlanMeasurement : public RecipeMeasurement {
 public:
  using RecipeMeasurement::RecipeMeasurement;

 protected:
  bool set(const std::string& key, const std::string& value) override;
  bool runs() const override { return false; }
  void run(LabContext&, CompiledSession, RunRecord&, lab::Row&, Profile&) const override {}
};

class TimedMeasurement : public RecipeMeasurement {
 public:
  using RecipeMeasurement::RecipeMeasurement;
  bool in_both_rounds() const override { return runs(); }

 protected:
  // A measurement for another device is only planned.
  bool set(const std::string& key, const std::string& value) override;
  bool runs() const override { return !planned_; }
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;

 private:
  bool planned_ = false;
};

class ProfileMeasurement : public RecipeMeasurement {
 public:
  using RecipeMeasurement::RecipeMeasurement;

 protected:
  void run(LabContext& context, CompiledSession session, RunRecord& record, lab::Row& row,
           Profile& detail) const override;
};

}  // namespace crest
