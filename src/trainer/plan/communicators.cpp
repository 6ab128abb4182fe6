#include "plan/communicators.h"

#include <fmt/format.h>

#include <map>

#include "comm/mesh_groups.h"
#include "core/error.h"
#include "plan/compile.h"
#include "program/op.h"

namespace crest {

namespace {

constexpr int64_t mib = int64_t(1) << 20;
// One NCCL 2.28.3 communicator after its first collective, measured on two H100 with NVLink. A ring
// has two connections whatever the number of ranks (nccl issue 986), so larger groups count the
// same. Other versions and links need other amounts.
constexpr int64_t collective_bytes = 870 * mib;
// A peer of sends and receives has connections of its own: an all-to-all of 8 H100 took 3.28 GB,
// which is 14 MiB for each of 32 channels and 7 peers, in buffers of 10 and 2 MiB (nccl issue
// 1685).
constexpr int64_t peer_bytes = int64_t(32) * 14 * mib;

// The set of all axes for any that connect all ranks: they share a communicator.
Axes communicator_axes(const Mesh& mesh, const Instr& instr) {
  const Axes axes = axes_of(instr);
  return mesh.size(axes) == mesh.ranks() ? Axes::all() : axes;
}

// The other ranks' places in the group, if the instruction is a transfer of NCCL. A piece comes
// from the rank k places further and goes k places back, or the other way. Groups are alike, so
// place 0 stands for all.
std::vector<int> peers_of(const Instr& instr, const Kernel& kernel) {
  const std::string_view op = instr.op->name;
  if (op == "send") return {int(instr.attrs.integer("to"))};
  if (op == "receive") return {int(instr.attrs.integer("from"))};
  if (op != "gather_piece" && op != "scatter_piece") return {};
  if (by_copy_engines(kernel.name)) return {};
  const int k = int(instr.attrs.integer("piece"));
  return {k, int(instr.attrs.integer("ranks")) - k};
}

}  // namespace

std::set<Axes> axes_in_use(const CompiledSession& session) {
  std::set<Axes> used;
  for (auto& c : session.programs)
    for (auto& instr : c.program.code)
      if (instr.op->op_class == OpClass::communication) used.insert(axes_of(instr));
  return used;
}

std::vector<CommunicatorMemory> communicator_memory(const CompiledSession& session) {
  if (session.device.kind != "cuda" || session.recipe.ranks == 1) return {};
  const Mesh mesh = session.recipe.layout();
  std::map<Axes, std::set<int>> peers;  // by the axes of the communicator
  peers[Axes::all()];
  for (Axes axes : MeshGroups::parts(mesh, axes_in_use(session))) peers[axes];
  for (auto& c : session.programs)
    for (size_t i = 0; i < c.program.code.size(); ++i) {
      const Instr& instr = c.program.code[i];
      if (instr.op->op_class != OpClass::communication) continue;
      std::set<int>& of_group = peers.at(communicator_axes(mesh, instr));
      for (int peer : peers_of(instr, *c.kernels[i])) of_group.insert(peer);
    }
  std::vector<CommunicatorMemory> list;
  for (auto& [axes, others] : peers) {
    const int n = int(others.size());
    list.push_back({axes, mesh.size(axes), n, collective_bytes + n * peer_bytes});
  }
  return list;
}

bool by_copy_engines(std::string_view kernel) { return kernel.ends_with(".copy_engine"); }

std::map<Axes, std::vector<int>> copying_instructions(const CompiledSession& session, const CompiledProgram& c) {
  const Mesh mesh = session.recipe.layout();
  std::map<Axes, std::vector<int>> lists;
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    const Instr& instr = c.program.code[i];
    if (instr.op->op_class != OpClass::communication || !by_copy_engines(c.kernels[i]->name)) continue;
    std::vector<int>& list = lists[communicator_axes(mesh, instr)];
    list.push_back(int(i));
    if (c.program.code[size_t(list[0])].stream != instr.stream)
      fail_internal(fmt::format("two streams of {} copy between the same ranks", c.spec.name));
  }
  return lists;
}

int64_t total_bytes(const std::vector<CommunicatorMemory>& communicators) {
  int64_t bytes = 0;
  for (auto& c : communicators) bytes += c.bytes;
  return bytes;
}

}  // namespace crest
