// The time of a step before it runs, learned from profiles of steps on the same device.
//
// An instruction is described by its class (kernel, types and fused operations), FLOPs and bytes.
// Within a class, time is a + b * FLOPs + c * bytes with a, b, c >= 0, fitted to the relative
// error, and corrected near measured sizes: an instruction of a measured size gets its measured
// time. A step is the sum of its instructions, scaled as in the measured steps.
//
// Products and attention of a GPU have a shape, too: FLOPs count in whole tiles, and "near" means a
// like shape. Products of long steps run at the clock of the power limit.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "predict/attention_tiles.h"
#include "predict/product_shape.h"
#include "profile/profile.h"

namespace crest {

// a * x0 + b * x1 + ...: least squares of the relative error, no coefficient below 0.
std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows, const std::vector<double>& y);

// One call of an instruction.
struct CallTime {
  double flops = 0, bytes = 0, ms = 0;
  ProductShape shape = {};
  AttentionShape attention = {};
  double tiles = 1;  // tile_factor
  bool shaped() const { return shape.known() || attention.known(); }
};

struct StepPrediction {
  double ms = 0, low_ms = 0, high_ms = 0;  // a step; the range covers 90% of the test steps
  double known = 1;                        // share of the time from measured classes
  std::vector<double> instr_ms;            // by row, over all calls
};

class TimeModel {
  struct Row {
    std::string key, op_class, arithmetic;
    int calls = 1;
    CallTime call;
    double floor_ms = 0;
  };

 public:
  // The rows of a session, prepared for many predictions: the distinct rows, and the row of each
  // instruction.
  class Work {
    friend class TimeModel;
    std::vector<Row> rows;
    std::vector<std::pair<size_t, int>> instrs;  // row, calls
  };
  // rows: a session from describe_session().
  static Work prepare(const Profile& rows);

  // Adds the rows and the median time of a measured step.
  void add(const Profile& profile);
  size_t steps() const { return steps_.size(); }
  // A measured limit of the device ("bf16", "bandwidth") per second; 0: not measured.
  double rate(const std::string& name) const;
  const std::vector<ProfileRate>& rates() const { return rates_; }
  // Of the GPU; 0: unknown, or a CPU.
  int64_t multiprocessors() const { return multiprocessors_; }
  void set_multiprocessors(int64_t count);

  // Needs at least one measured step. waits_ms: time between the instructions in which the GPU
  // multiplies nothing, such as exposed collectives. It is not part of the step.
  StepPrediction predict(const Work& work, double waits_ms = 0) const;
  StepPrediction predict(const Profile& rows, double waits_ms = 0) const { return predict(prepare(rows), waits_ms); }
  // Standard deviation of a rank's step over its mean: the median of the measured steps, without
  // outliers of a busy machine. 0: no step has enough samples.
  double spread() const;
  // |ln(predicted / measured)| of each measured step, predicted from all others. Empty with fewer
  // than three steps.
  std::vector<double> errors() const;

  // {"rates": ..., "steps": ...}; "multiprocessors" if known
  nlohmann::ordered_json to_json() const;
  // Throws with `where` and the problem.
  static TimeModel from_json(const nlohmann::ordered_json& json, const std::string& where);

 private:
  struct Step {
    double ms = 0;
    double spread = 0;  // see spread()
    std::vector<Row> rows;
    // By row:
    Work work;
    std::vector<std::pair<std::string, CallTime>> points;   // by class; equal instructions merged
    std::map<std::string, std::vector<double>> over_floor;  // by operation class; "": all
    double rows_ms = 0, calls = 0;
    double products = 0;  // share of rows_ms
  };
  // A fitted class.
  struct Fit {
    std::vector<CallTime> points;
    std::vector<double> ratios;  // measured / fitted, by point
    std::vector<double> line;
    bool shaped = false;  // all points have a shape
    double ms(const CallTime& call) const;
  };
  struct Fits {
    std::map<std::string, Fit> classes;
    std::map<std::string, double> over_floor;  // by operation class; "": all
    std::vector<double> step;                  // coefficients of {sum of instructions, calls, 1} for a step's ms
  };

  static Row row_of(const ProfileInstr& instr);
  static Work prepare(const std::vector<Row>& rows);
  static void summarize(Step& step);
  Fits fit(size_t without) const;
  const Fits& fits() const;
  // Of a similar class, for an unmeasured one; null: none.
  static const Fit* stand_in(const Fits& fits, const std::string& key);
  static StepPrediction predict(const Fits& fits, const Work& work, double waits_ms = 0);
  void set_limits(std::vector<Row>& rows) const;
  void set_tiles(CallTime& call) const;
  void set_tiles(Step& step) const;

  std::vector<Step> steps_;
  std::vector<ProfileRate> rates_;
  int64_t multiprocessors_ = 0;
  mutable Fits fits_;
  mutable double range_ = 0;
  mutable bool fitted_ = false;
};

}  // namespace crest
