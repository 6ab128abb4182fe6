#include "predict/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "backend/cuda/blas_plan.h"
#include "backend/cuda/gemm_sm90_entry.h"
#include "device/product_detail.h"
#include "predict/planned_time.h"
#include "program/op.h"

namespace crest {

namespace {

int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

bool is_product(const Instr& instr) {
  static const std::set<std::string_view> ops = {
      "linear",     "linear_gelu",         "linear_swiglu",         "linear_dx", "linear_dx_sum", "linear_dw",
      "linear_fp8", "linear_dx_gelu_grad", "linear_dx_swiglu_grad", "matmul"};
  return ops.count(instr.op->name) > 0;
}

// Some products exist only in Crest's own kernels: with a pointwise end, or two at once.
void set_sizes(const Program& p, const Instr& instr, StepProduct& product) {
  const std::string_view op = instr.op->name;
  const bool sum = op == "linear_dx_sum", swiglu = op == "linear_swiglu";
  if (sum || swiglu || op == "linear_dx_gelu_grad" || op == "linear_dx_swiglu_grad") {
    const Value &first = p.at(instr.in[0]), &w = p.at(instr.in[1]);
    product.m = first.shape.rows(), product.n = w.shape[swiglu ? 0 : 1], product.k = w.shape[swiglu ? 1 : 0];
    if (swiglu) product.n *= 2;
    if (sum) product.k *= 2;
    return;
  }
  cuda::BlasPlan plan = cuda::plan_blas(p, instr);
  cuda::Contraction what = cuda::contraction_of(p, instr);
  bool joined = plan.problem.empty();
  product.m = joined ? plan.m : what.m, product.n = joined ? plan.n : what.n, product.k = joined ? plan.k : what.k;
  product.batches = joined ? plan.batch.size * plan.calls() : what.batches() * what.sum.size;
}

// Tiles of the fast kernels of GEMM libraries.
constexpr std::pair<int64_t, int64_t> usual_tiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64},
                                                       {64, 256},  {128, 64},  {64, 128},  {64, 64}};

// If timing chooses the kernel, its tile is unknown before it runs. Assume the tile with the least
// waste.
ProductTile best_tile(const StepProduct& product, std::vector<ProductTile> tiles, int64_t multiprocessors) {
  ProductTile best;
  double least = 0;
  for (auto& tile : tiles) {
    StepProduct p = product;
    p.tile = tile;
    double padding = p.tile_padding() * p.wave_padding(multiprocessors);
    if (best.m == 0 || padding < least * (1 - 1e-9)) best = tile, least = padding;
  }
  return best;
}

ProductTile tile_of(const KernelQuery& q, const Kernel& kernel, const StepProduct& product) {
  std::string_view name = kernel.name;
  bool own = name.find("sm90") != std::string_view::npos, library = name.ends_with("cublaslt");
  if (q.device.kind != "cuda" || !product.tensor_cores || (!own && !library)) return {};
  cuda::GemmTile crest = own ? cuda::gemm_sm90_tile(q.instr) : cuda::GemmTile{};
  if (own && !library) return {crest.rows, crest.columns, crest.divides_sum, "of Crest's kernel"};
  if (!own && !q.device.described && !q.device.emulated && kernel.prepare) {
    std::shared_ptr<void> prepared = kernel.prepare(q);
    ProductDetail detail = product_detail(kernel, q, prepared.get());
    if (detail.tile_m > 0) return {detail.tile_m, detail.tile_n, false, "of cuBLASLt's first algorithm"};
  }
  std::vector<ProductTile> tiles;
  if (own) tiles.push_back({crest.rows, crest.columns, crest.divides_sum, "of Crest's kernel, if timing chooses it"});
  for (auto [m, n] : usual_tiles) tiles.push_back({m, n, false, "assumed: the best usual tile"});
  return best_tile(product, tiles, q.device.multiprocessors);
}

}  // namespace

std::string place_of(const Instr& instr) {
  std::string text = instr.origin.text();
  if (instr.origin.layer() < 0) return text;
  std::string number = "." + std::to_string(instr.origin.layer()) + ".";
  for (size_t at; (at = text.find(number)) != std::string::npos;) text.replace(at, number.size(), ".*.");
  return text;
}

int64_t StepProduct::tiles() const { return tile.m > 0 ? pieces(m, tile.m) * pieces(n, tile.n) * batches : 0; }

double StepProduct::tile_padding() const {
  if (tile.m <= 0) return 1;
  return double(pieces(m, tile.m) * tile.m) * double(pieces(n, tile.n) * tile.n) / (double(m) * double(n));
}

double StepProduct::waves(int64_t multiprocessors) const {
  return multiprocessors > 0 ? double(tiles()) / double(multiprocessors) : 0;
}

double StepProduct::wave_padding(int64_t multiprocessors) const {
  double w = waves(multiprocessors);
  return w > 0 && !tile.divides_sum ? std::ceil(w) / w : 1;
}

std::vector<StepProduct> products_of(const CompiledSession& session) {
  Profile rows = step_rows(session);
  std::vector<StepProduct> list;
  std::map<std::string, ProductTile> tiles;  // layers are alike
  for (size_t r = 0; r < rows.instrs.size(); ++r) {
    const ProfileInstr& row = rows.instrs[r];
    const CompiledProgram& c = session.programs[size_t(session.find(row.program))];
    const Instr& instr = c.program.code[size_t(row.index)];
    if (!is_product(instr)) continue;
    StepProduct p;
    p.row = r, p.place = place_of(instr), p.op = row.op, p.kernel = row.kernel, p.arithmetic = row.arithmetic;
    p.calls = row.calls, p.element = int64_t(size_of(c.program.at(instr.in[0]).dtype));
    p.tensor_cores = session.device.kind == "cuda" && row.arithmetic != "fp32";
    set_sizes(c.program, instr, p);
    auto [tile, added] = tiles.try_emplace(fmt::format("{} {} {} {} {} {}", p.kernel, p.op, p.m, p.n, p.k, p.batches));
    if (added) tile->second = tile_of({c.program, instr, session.device}, *c.kernels[size_t(row.index)], p);
    p.tile = tile->second;
    list.push_back(std::move(p));
  }
  return list;
}

}  // namespace crest
