// The communicators of a rank: of all ranks, and of the ranks along axes of the mesh.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "comm/comm.h"
#include "program/mesh.h"

namespace crest {

class MeshGroups {
 public:
  // world: connects all ranks of the mesh, and outlives this. used: the sets of axes along which
  // Programs communicate. All ranks make it together, with the same values. A set that spans the
  // mesh is the world's communicator; each other one has its own.
  MeshGroups(const Mesh& mesh, Communicator& world, const std::set<Axes>& used);

  // Of `used`, the sets with a communicator besides the world's.
  static std::set<Axes> parts(const Mesh& mesh, const std::set<Axes>& used);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return world_.rank(); }
  // The place of this rank in its group along axes.
  int index(Axes axes) const { return mesh_.index(rank(), axes); }
  Communicator& world() const { return world_; }
  // An internal error for axes that were not among `used`.
  Communicator& group(Axes axes) const;

  // Like the functions of Communicator, for all groups. A group that does not include a lost rank
  // ends once its members notice the loss in another group and leave.
  bool capturable() const { return world_.capturable(); }
  int64_t device_bytes() const;
  void check() const;
  void leave() const;

 private:
  Mesh mesh_;
  Communicator& world_;
  std::map<Axes, std::unique_ptr<Communicator>> parts_;
};

}  // namespace crest
