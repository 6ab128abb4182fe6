// The kinds of cells, one row each.
#include <algorithm>

#include "lab/recipe_cell.h"

namespace crest {

namespace {

template <class Cell>
std::unique_ptr<LabCell> make(const lab::Experiment& e, lab::CellSpec spec, const Device& device, int64_t limit) {
  return std::make_unique<Cell>(e, std::move(spec), device, limit);
}

CellMaker* maker_of(lab::Kind kind) {
  switch (kind) {
    case lab::Kind::arithmetic: break;  // it has no cells
    case lab::Kind::plan: return make<PlanCell>;
    case lab::Kind::bench: return make<TimedCell>;
    case lab::Kind::profile: return make<ProfileCell>;
    case lab::Kind::gemm: return make_gemm_cell;
    case lab::Kind::train: return make_train_cell;
    case lab::Kind::comm: return make_comm_cell;
  }
  return nullptr;
}

}  // namespace

LabCells lab_cells(const lab::Experiment& e, const std::string& scale, const Device& device, int64_t limit,
                   const std::string& data) {
  LabCells cells;
  std::vector<lab::CellSpec> specs = lab::cells_of(e, scale, device.kind);
  CellMaker* maker = maker_of(e.kind);
  bool runs = e.kind == lab::Kind::bench || e.kind == lab::Kind::profile;
  if (runs && std::any_of(specs.begin(), specs.end(), wants_processes)) maker = make_process_cell;
  for (auto& spec : specs) {
    if (lab::info(e.kind).reads_text && !data.empty() && !spec.keys.count("data"))
      spec.settings.emplace_back("data", data), spec.keys["data"] = data, spec.places["data"] = "--data";
    bool peer = e.kind == lab::Kind::bench && spec.keys.count("peer");
    cells.push_back((peer ? make_peer_cell : maker)(e, spec, device, limit));
    cells.back()->read();
    cells.back()->group_with(cells);
  }
  return cells;
}

}  // namespace crest
