#include "comm/mesh_groups.h"

#include <fmt/format.h>

namespace crest {

MeshGroups::MeshGroups(const Mesh& mesh, Communicator& world, const std::set<Axes>& used) : mesh_(mesh), world_(world) {
  if (mesh.ranks() != world.size())
    fail_internal(fmt::format("{} ranks are connected, but the mesh is {}", world.size(), mesh.text()));
  for (Axes axes : parts(mesh, used)) parts_.emplace(axes, world.split(mesh.group(rank(), axes)));
}

std::set<Axes> MeshGroups::parts(const Mesh& mesh, const std::set<Axes>& used) {
  std::set<Axes> smaller;
  for (Axes axes : used)
    if (mesh.size(axes) < mesh.ranks()) smaller.insert(axes);
  return smaller;
}

Communicator& MeshGroups::group(Axes axes) const {
  if (mesh_.size(axes) == mesh_.ranks()) return world_;
  auto part = parts_.find(axes);
  if (part == parts_.end()) fail_internal(fmt::format("the ranks along {} are not connected", axes.text()));
  return *part->second;
}

int64_t MeshGroups::device_bytes() const {
  int64_t bytes = world_.device_bytes();
  for (auto& [axes, part] : parts_) bytes += part->device_bytes();
  return bytes;
}

void MeshGroups::check() const {
  world_.check();
  for (auto& [axes, part] : parts_) part->check();
}

void MeshGroups::released(const void* allocation, bool wait) const {
  for (auto& [axes, part] : parts_) part->released(allocation, wait);
  world_.released(allocation, wait);
}

void MeshGroups::leave() const {
  for (auto& [axes, part] : parts_) part->leave();
  world_.leave();
}

}  // namespace crest
