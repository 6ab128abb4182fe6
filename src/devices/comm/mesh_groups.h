// The communicators of a rank: one with all ranks, and one for each set of axes of the mesh.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "comm/comm.h"
#include "program/mesh.h"

namespace crest {

class MeshGroups {
 public:
  // world: connects all ranks of the mesh, and outlives this object. used: the sets of axes in the
  // Programs' communication. All ranks construct it together, with the same values. A set of all
  // axes uses the world's communicator; every other set gets its own.
  MeshGroups(const Mesh& mesh, Communicator& world, const std::set<Axes>& used);

  // The sets of `used` with a communicator of their own.
  static std::set<Axes> parts(const Mesh& mesh, const std::set<Axes>& used);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return world_.rank(); }
  // This rank's place in its group along axes.
  int index(Axes axes) const { return mesh_.index(rank(), axes); }
  Communicator& world() const { return world_; }
  // An internal error for axes not in `used`.
  Communicator& group(Axes axes) const;

  // As in Communicator, for all groups. A group without the lost rank ends when its members notice
  // the loss in another group and leave.
  bool capturable() const { return world_.capturable(); }
  int64_t device_bytes() const;
  void check() const;
  void leave() const;
  void released(const void* allocation, bool wait) const;

  // A runtime of the host adds the seconds that its computation spent in collectives or waited for
  // them, with the wait for other ranks. take_waited() returns those since its last call.
  void waited(double seconds) const { waited_ += seconds; }
  double take_waited() const { return std::exchange(waited_, 0); }

 private:
  mutable double waited_ = 0;
  Mesh mesh_;
  Communicator& world_;
  std::map<Axes, std::unique_ptr<Communicator>> parts_;
};

}  // namespace crest
