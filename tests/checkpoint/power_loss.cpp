// Power loss: replays a recorded save up to every operation and keeps nothing, all, or a random
// part of the unsynced data, as a file system may. Files and folders are inodes; an fsync makes
// data or names durable, nothing else does.
#include <random>

#include "faults.h"
#include "tiny.h"

using namespace crest;
using namespace crest::test;

namespace {

class Disk {
 public:
  enum class Survives { synced_only, names_not_data, everything, random };

  explicit Disk(std::string root) : root_(std::move(root)) { nodes_.push_back({true, "", "", {}, {}}); }

  void apply(const RecordedCall& call) {
    auto [folder, name] = locate(call.path);
    if (call.op == "mkdir" || call.op == "create") {
      // In reality, opening an existing file empties it. Here it makes a new inode under the name:
      // this loses at least as much.
      int node = int(nodes_.size());
      nodes_.push_back({call.op == "mkdir", "", "", {}, {}});
      change(folder, {{name, node}});
    } else if (call.op == "symlink") {  // its target is written with the inode
      nodes_.push_back({false, call.path2, call.path2, {}, {}});
      change(folder, {{name, int(nodes_.size()) - 1}});
    } else if (call.op == "write") {
      nodes_[size_t(now(folder).at(name))].data += call.data;
    } else if (call.op == "fsync") {
      Node& node = name.empty() ? nodes_[0] : nodes_[size_t(now(folder).at(name))];
      node.durable_data = node.data;
      for (auto& step : node.pending) step_into(node.durable_names, step);
      node.pending.clear();
    } else if (call.op == "rename") {
      auto [to_folder, to_name] = locate(call.path2);
      ASSERT_EQ(folder, to_folder) << "the model knows renames within a folder only";
      change(folder, {{name, -1}, {to_name, now(folder).at(name)}});
    } else {
      ASSERT_TRUE(call.op == "unlink" || call.op == "rmdir") << call.op;
      change(folder, {{name, -1}});
    }
  }

  void write_to(const std::string& path, Survives mode, uint32_t seed) {
    random_.seed(seed);
    write_node(0, path, mode);
  }

 private:
  using Step = std::vector<std::pair<std::string, int>>;  // names set together (a rename); -1 removes
  using Names = std::map<std::string, int>;
  struct Node {
    bool folder;
    std::string data, durable_data;
    Names durable_names;
    std::vector<Step> pending;
  };

  static void step_into(Names& names, const Step& step) {
    for (auto& [name, node] : step)
      if (node < 0)
        names.erase(name);
      else
        names[name] = node;
  }
  Names now(int folder) const {
    Names names = nodes_[size_t(folder)].durable_names;
    for (auto& step : nodes_[size_t(folder)].pending) step_into(names, step);
    return names;
  }
  void change(int folder, Step step) { nodes_[size_t(folder)].pending.push_back(std::move(step)); }
  // (inode of the folder, name in it); the root itself has no name.
  std::pair<int, std::string> locate(const std::string& path) const {
    if (path == root_) return {0, ""};
    std::string rest = path.substr(root_.size() + 1);
    int folder = 0;
    for (size_t slash; (slash = rest.find('/')) != std::string::npos; rest = rest.substr(slash + 1))
      folder = now(folder).at(rest.substr(0, slash));
    return {folder, rest};
  }
  void write_node(int index, const std::string& path, Survives mode) {
    const Node& node = nodes_[size_t(index)];
    if (!node.folder) {
      std::string data = mode == Survives::everything ? node.data : node.durable_data;
      if (mode == Survives::random && node.data.size() > data.size()) {
        // A prefix of the data was written, or the length was written and the bytes were not.
        data = node.data.substr(0, data.size() + random_() % (node.data.size() - data.size() + 1));
        if (random_() % 2) data.resize(node.data.size(), '\0');
      }
      write_file_synced(path, data);
      return;
    }
    if (!is_directory(path)) create_directory(path);
    Names names = node.durable_names;
    for (auto& step : node.pending) {
      bool survives = mode == Survives::random ? random_() % 2 == 0 : mode != Survives::synced_only;
      if (survives) step_into(names, step);
    }
    for (auto& [name, child] : names) write_node(child, join_path(path, name), mode);
  }

  std::string root_;
  std::vector<Node> nodes_;
  std::mt19937 random_;
};

}  // namespace

TEST(PowerLoss, EveryPrefixOfEverySaveLeavesAValidCheckpoint) {
  struct Case {
    TinyModel before, after;
    int keep;
  };
  std::vector<Case> cases = {
      {TinyModel(1), TinyModel(2), 1}, {TinyModel(1), TinyModel(2), 0}, {TinyModel(1, 1), TinyModel(1, 2), 1}};
  int states = 0, dropped = 0;
  for (auto& c : cases) {
    MemoryFolder folder;
    std::vector<RecordedCall> calls;
    size_t first_done = 0;
    {
      Faults faults(Fault::none, -1, 0, true);
      save_checkpoint(c.before.contents(), folder.path(), 0);
      first_done = faults.recorded().size();
      save_checkpoint(c.after.contents(), folder.path(), c.keep);
      calls = faults.recorded();
    }
    Disk disk(folder.path());
    for (size_t i = 0; i < first_done; ++i) ASSERT_NO_FATAL_FAILURE(disk.apply(calls[i]));
    for (size_t i = first_done; i <= calls.size(); ++i) {
      for (int variant = 0; variant < 8; ++variant) {
        auto mode = variant < 3 ? Disk::Survives(variant) : Disk::Survives::random;
        MemoryFolder after;
        disk.write_to(after.path(), mode, uint32_t(i * 8 + size_t(variant)));
        auto found = find_checkpoint(after.path());
        ASSERT_TRUE(found) << "operation " << i - first_done << ", variant " << variant;
        bool is_new = bool(c.after.equals(*found));
        ASSERT_TRUE(is_new || c.before.equals(*found));
        if (i == calls.size()) {
          EXPECT_TRUE(is_new) << "a save that returned must survive, variant " << variant;
        }
        dropped += !is_new;
        ++states;
        // The first run after the power cut can save.
        if (variant == 3) {
          save_checkpoint(c.after.contents(), after.path(), 1);
          EXPECT_TRUE(c.after.equals(*find_checkpoint(after.path())));
        }
      }
      if (i < calls.size()) {
        ASSERT_NO_FATAL_FAILURE(disk.apply(calls[i]));
      }
    }
  }
  EXPECT_GE(states, 500);
  EXPECT_GT(dropped, 100);
  std::printf("%d states after power loss\n", states);
}
