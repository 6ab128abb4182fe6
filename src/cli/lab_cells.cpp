// The kinds of cells: a row each.
#include "cli/lab_gemm.h"
#include "cli/lab_recipe.h"

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
  }
  return nullptr;
}

}  // namespace

LabCells lab_cells(const lab::Experiment& e, const std::string& scale, const Device& device, int64_t limit) {
  LabCells cells;
  for (auto& spec : lab::cells_of(e, scale, device.kind)) {
    cells.push_back(maker_of(e.kind)(e, spec, device, limit));
    cells.back()->read();
  }
  return cells;
}

}  // namespace crest
