// One rank of a mesh, alone: it knows its place, and the other ranks do not exist.
#pragma once
#include <memory>

#include "comm/mesh_groups.h"

namespace crest::test {

class OneRank {
 public:
  OneRank(const Mesh& mesh, int rank)
      : world_(std::make_unique<Alone>(rank, mesh.ranks())),
        groups_(std::make_unique<MeshGroups>(mesh, *world_, std::set<Axes>())) {}
  // Null: it is the only one.
  const MeshGroups* groups() const { return groups_->mesh().ranks() > 1 ? groups_.get() : nullptr; }

 private:
  class Alone final : public Communicator {
   public:
    Alone(int rank, int size) : rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(void*, DType, int64_t, bool) override { no(); }
    void all_gather(const void*, void*, DType, int64_t) override { no(); }
    void reduce_scatter(void*, void*, DType, int64_t) override { no(); }
    void broadcast(void*, DType, int64_t, int) override { no(); }
    void send_receive(const void*, int, void*, int, int64_t) override { no(); }
    void barrier() override { no(); }

   private:
    [[noreturn]] static void no() { fail_internal("the other ranks are not there"); }
    int rank_, size_;
  };
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<MeshGroups> groups_;
};

}  // namespace crest::test
