// The kinds of cells: a row each.
#include <algorithm>

#include "cli/lab_comm.h"
#include "cli/lab_gemm.h"
#include "cli/lab_process.h"
#include "cli/lab_recipe.h"
#include "cli/lab_train.h"

namespace crest {

namespace {

using Maker = std::unique_ptr<LabCell> (*)(const lab::Experiment&, lab::CellSpec, const Device&, int64_t);

template <class Cell>
std::unique_ptr<LabCell> make(const lab::Experiment& e, lab::CellSpec spec, const Device& device, int64_t limit) {
  return std::make_unique<Cell>(e, std::move(spec), device, limit);
}

Maker maker_of(lab::Kind kind) {
  switch (kind) {
    case lab::Kind::arithmetic: break;  // it has no cells
    case lab::Kind::plan: return make<PlanCell>;
    case lab::Kind::bench: return make<TimedCell>;
    case lab::Kind::profile: return make<ProfiledCell>;
    case lab::Kind::gemm: return make<GemmCell>;
    case lab::Kind::train: return make<TrainCell>;
    case lab::Kind::comm: return make<CommCell>;
  }
  return nullptr;
}

}  // namespace

LabCells lab_cells(const lab::Experiment& e, const std::string& scale, const Device& device, int64_t limit,
                   const std::string& data) {
  LabCells cells;
  std::vector<lab::CellSpec> specs = lab::cells_of(e, scale, device.kind);
  Maker maker = maker_of(e.kind);
  bool runs = e.kind == lab::Kind::bench || e.kind == lab::Kind::profile;
  if (runs && std::any_of(specs.begin(), specs.end(), ProcessCell::is_wanted)) maker = make<ProcessCell>;
  for (auto& spec : specs) {
    if (lab::info(e.kind).reads_text && !data.empty() && !spec.keys.count("data"))
      spec.settings.emplace_back("data", data), spec.keys["data"] = data, spec.places["data"] = "--data";
    cells.push_back(maker(e, spec, device, limit));
    cells.back()->read();
    cells.back()->meet(cells);
  }
  return cells;
}

}  // namespace crest
