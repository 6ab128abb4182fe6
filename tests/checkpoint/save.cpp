// Results of a save: content, names, retention, leftovers, other models, damage.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "core/json.h"
#include "core/system_error.h"
#include "faults.h"
#include "tiny.h"

using namespace crest;
using namespace crest::test;

using Names = std::vector<std::string>;

TEST(Checkpoint, WhatIsSavedIsLoaded) {
  MemoryFolder folder;
  TinyModel model(12);
  SaveResult saved = save_checkpoint(model.contents(), folder / "checkpoints", 3);
  EXPECT_EQ(saved.path, folder / "checkpoints/step-000012");
  EXPECT_TRUE(saved.warnings.empty());
  EXPECT_EQ(names_in(saved.path),
            (Names{"config.json", "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"}));
  EXPECT_EQ(std::filesystem::read_symlink(folder / "checkpoints/latest"), "step-000012");
  auto found = find_checkpoint(folder / "checkpoints");
  ASSERT_TRUE(found);
  EXPECT_TRUE(model.equals(*found));
  ASSERT_NE(found->file("config.json"), nullptr);
  EXPECT_EQ(*found->file("config.json"), "{\"model_type\": \"gpt2\"}\n");
  EXPECT_EQ(found->file("nothing"), nullptr);
  uint64_t bytes = 0;
  for (auto& name : names_in(saved.path)) bytes += read_file(join_path(saved.path, name), 1 << 20).size();
  EXPECT_EQ(bytes, saved.bytes);
}

TEST(Checkpoint, ManifestHashesEveryFile) {
  MemoryFolder folder;
  std::string path = save_checkpoint(TinyModel(1).contents(), folder.path(), 0).path;
  nlohmann::json manifest = nlohmann::json::parse(read_file(path + "/manifest.json", 1 << 20));
  std::string config = read_file(path + "/config.json", 1000);
  EXPECT_EQ(manifest["files"]["config.json"]["sha256"], sha256_hex(config.data(), config.size()));
  auto file = SafetensorsFile::open(path + "/model.safetensors");
  for (auto& t : file.tensors()) {
    std::vector<char> data(t.bytes);
    EXPECT_EQ(to_hex(file.read_hashed(size_t(&t - file.tensors().data()), data.data(), t.bytes)),
              manifest["files"]["model.safetensors"]["tensors"][t.spec.name]);
  }
}

TEST(Checkpoint, KeepsTheNewestAndTheOneJustWritten) {
  MemoryFolder folder;
  for (int step : {10, 20, 30, 40}) save_checkpoint(TinyModel(step).contents(), folder.path(), 2);
  EXPECT_EQ(names_in(folder.path()), (Names{"latest", "step-000030", "step-000040"}));
  // A run that went back to an older step keeps its own checkpoint.
  save_checkpoint(TinyModel(5).contents(), folder.path(), 2);
  EXPECT_EQ(names_in(folder.path()), (Names{"latest", "step-000005", "step-000030", "step-000040"}));
  save_checkpoint(TinyModel(50).contents(), folder.path(), 0);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 4u);
  save_checkpoint(TinyModel(60).contents(), folder.path(), 1);
  EXPECT_EQ(names_in(folder.path()), (Names{"latest", "step-000060"}));
}

TEST(Checkpoint, LabelsAreRelativeLinksOrTexts) {
  MemoryFolder folder;
  const std::string latest = folder / "latest";
  {
    Faults faults;
    faults.can_link = false;
    EXPECT_TRUE(save_checkpoint(TinyModel(1).contents(), folder.path(), 0).warnings.empty());
  }
  EXPECT_FALSE(std::filesystem::is_symlink(latest));
  EXPECT_EQ(read_file(latest, 100), "step-000001\n");
  EXPECT_EQ(labeled_checkpoint(folder.path(), "latest"), "step-000001");
  // The text of an older program is replaced.
  save_checkpoint(TinyModel(2).contents(), folder.path(), 0);
  EXPECT_EQ(std::filesystem::read_symlink(latest), "step-000002");
  EXPECT_EQ(labeled_checkpoint(folder.path(), "latest"), "step-000002");
  EXPECT_EQ(Checkpoint::open(latest).step(), 2);
  save_checkpoint(TinyModel(3).contents(), folder.path(), 0);
  EXPECT_EQ(std::filesystem::read_symlink(latest), "step-000003");
  // Only the link is replaced, not the file behind it. A folder of this name stays.
  write_file_synced(folder / "own", "mine");
  std::filesystem::remove(latest);
  std::filesystem::create_symlink("own", latest);
  EXPECT_EQ(labeled_checkpoint(folder.path(), "latest"), "");
  save_checkpoint(TinyModel(4).contents(), folder.path(), 0);
  EXPECT_EQ(std::filesystem::read_symlink(latest), "step-000004");
  EXPECT_EQ(read_file(folder / "own", 10), "mine");
  std::filesystem::remove(latest);
  create_directory(latest);
  const auto warnings = save_checkpoint(TinyModel(5).contents(), folder.path(), 0).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "is a folder, not a link") && contains(warnings[0], "Move it away")) << warnings[0];
}

TEST(Checkpoint, TheBestOneIsKeptBesides) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(10).contents(), folder.path(), 2);
  label_checkpoint(Folder::open(folder.path()), best_label, "step-000010");
  for (int step : {20, 30, 40}) save_checkpoint(TinyModel(step).contents(), folder.path(), 2);
  EXPECT_EQ(names_in(folder.path()), (Names{"best", "latest", "step-000010", "step-000030", "step-000040"}));
  EXPECT_EQ(Checkpoint::open(folder / "best").step(), 10);
}

TEST(Checkpoint, SavingTheSameAgainWritesNothing) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(3).contents(), folder.path(), 1);
  Faults faults(Fault::none, -1, 0, true);
  SaveResult again = save_checkpoint(TinyModel(3).contents(), folder.path(), 1);
  EXPECT_TRUE(again.already_there);
  for (auto& call : faults.recorded()) EXPECT_FALSE(contains(call.path, "safetensors")) << call.op;
}

TEST(Checkpoint, AnotherContentReplacesTheSameStep) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(3, 1).contents(), folder.path(), 1);
  SaveResult again = save_checkpoint(TinyModel(3, 2).contents(), folder.path(), 1);
  EXPECT_FALSE(again.already_there);
  EXPECT_TRUE(TinyModel(3, 2).equals(*find_checkpoint(folder.path())));
  EXPECT_EQ(names_in(folder.path()), (Names{"latest", "step-000003"}));
}

TEST(Checkpoint, PartialFoldersDoNotBlockASave) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(1).contents(), folder.path(), 0);
  for (const char* name : {"step-000002", ".tmp-step-000002", ".trash-step-000001", ".replaced-step-000002"}) {
    create_directories(folder / name);
    write_file_atomic(folder / name + "/model.safetensors", "half of it");
  }
  std::vector<std::string> reports;
  auto found = find_checkpoint(folder.path(), [&](auto& text) { reports.push_back(text); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), 1);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(contains(reports[0], "step-000002") && contains(reports[0], "manifest") &&
              contains(reports[0], "step-000001 instead"))
      << reports[0];
  save_checkpoint(TinyModel(2).contents(), folder.path(), 0);
  EXPECT_TRUE(TinyModel(2).equals(*find_checkpoint(folder.path())));
  EXPECT_EQ(names_in(folder.path()), (Names{"latest", "step-000001", "step-000002"}));
}

TEST(Checkpoint, AnotherModelIsRefusedByName) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(1).contents(), folder.path(), 0);
  Checkpoint checkpoint = *find_checkpoint(folder.path());
  auto specs = checkpoint.weight_specs();
  EXPECT_EQ(error_of([&] { checkpoint.require_weights(specs); }), "");
  auto wrong = specs;
  std::reverse(wrong.begin(), wrong.end());
  EXPECT_EQ(error_of([&] { checkpoint.require_weights(wrong); }), "") << "the order does not matter";
  for (auto& spec : wrong)
    if (spec.name == "wte.weight") spec.shape = {3, 16};
  wrong.push_back({"lm_head.weight", DType::f32, {3, 8}});
  wrong.erase(std::find_if(wrong.begin(), wrong.end(), [](auto& s) { return s.name == "h.0.ln.weight"; }));
  std::string error = error_of([&] { checkpoint.require_weights(wrong); });
  EXPECT_TRUE(contains(error, "wte.weight f32 [3, 16]") && contains(error, "[3, 8]")) << error;
  EXPECT_TRUE(contains(error, "missing: lm_head.weight")) << error;
  EXPECT_TRUE(contains(error, "not in the model: h.0.ln.weight bf16 [8]")) << error;
  EXPECT_NE(error_of([&] { checkpoint.load_weights({}); }), "");
}

// Single bits of all files of a checkpoint, spread evenly: 500 of them, or CREST_FLIPS (at most
// all).
TEST(Checkpoint, FlippedBitsAreFoundAndThePreviousUsed) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(1).contents(), folder.path(), 0);
  TinyModel newest(2, 0, 24);
  std::string path = save_checkpoint(newest.contents(), folder.path(), 0).path;
  std::vector<std::pair<std::string, std::string>> files;
  uint64_t bits = 0;
  for (auto& name : names_in(path)) {
    files.emplace_back(join_path(path, name), read_file(join_path(path, name), 1 << 20));
    bits += 8 * files.back().second.size();
  }
  ASSERT_GT(bits, 10'000u);
  const uint64_t flips = std::min(bits, uint64_t(count_from("CREST_FLIPS", 500)));
  uint64_t missed = 0;
  for (uint64_t i = 0; i < flips; ++i) {
    uint64_t bit = uint64_t(double(bits) / double(flips) * double(i));
    auto file = files.begin();
    for (; bit >= 8 * file->second.size(); ++file) bit -= 8 * file->second.size();
    std::string damaged = file->second;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << bit % 8));
    write_file_synced(file->first, damaged);
    std::string report;
    auto found = find_checkpoint(folder.path(), [&](auto& text) { report += text; });
    ASSERT_TRUE(found) << file->first << " " << bit;
    // Opening the checkpoint directly also refuses the data, before anything uses it.
    bool refused = !error_of([&] { (void)newest.equals(Checkpoint::open(path)); }).empty();
    bool told = contains(report, "step-000002") && contains(report, "step-000001");
    missed += found->step() != 1 || !refused || !told;
    EXPECT_EQ(missed, 0u) << file->first << ": bit " << bit % 8 << " of byte " << bit / 8 << " was not noticed; "
                          << report;
    write_file_synced(file->first, file->second);
  }
  EXPECT_TRUE(newest.equals(*find_checkpoint(folder.path())));
  std::printf("%llu flipped bits of the %llu in %zu files, %llu missed\n", (unsigned long long)flips,
              (unsigned long long)bits, files.size(), (unsigned long long)missed);
}

TEST(Checkpoint, MissingAndTruncatedFilesAreFound) {
  MemoryFolder folder;
  std::string path = save_checkpoint(TinyModel(2).contents(), folder.path(), 0).path;
  for (auto& name : names_in(path)) {
    std::string file = join_path(path, name), bytes = read_file(file, 1 << 20);
    write_file_synced(file, bytes.substr(0, bytes.size() - 1));
    EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(path).verify(); }), name));
    write_file_synced(file, bytes + " ");
    EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(path).verify(); }), name));
    remove_tree(file);
    EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(path).verify(); }), name));
    std::string report;
    EXPECT_FALSE(find_checkpoint(folder.path(), [&](auto& text) { report += text; }));
    EXPECT_TRUE(contains(report, "No other checkpoint is valid")) << report;
    write_file_synced(file, bytes);
  }
  EXPECT_TRUE(find_checkpoint(folder.path()));
  rename_path(path, folder / "step-000007");
  EXPECT_FALSE(find_checkpoint(folder.path())) << "a folder under another step's name";
  EXPECT_FALSE(find_checkpoint(folder / "no such folder"));
}

TEST(Checkpoint, SpaceIsCheckedBeforeAnythingIsWritten) {
  MemoryFolder folder;
  save_checkpoint(TinyModel(1).contents(), folder.path(), 1);
  auto before = names_in(folder.path());
  Faults faults(Fault::none, -1, 0, true);
  faults.free_bytes = 5000;
  std::string error = error_of([&] { save_checkpoint(TinyModel(2).contents(), folder.path(), 1); });
  EXPECT_TRUE(contains(error, "not enough disk space") && contains(error, "5000 bytes") && contains(error, "needed"))
      << error;
  EXPECT_TRUE(faults.recorded().empty());
  EXPECT_EQ(names_in(folder.path()), before);
}

// An unreadable checkpoint may be intact. So nothing older is used, and nothing is set aside or
// replaced. A process without a free descriptor imitates folders that it may not read.
TEST(Checkpoint, WhatCannotBeReadIsAnErrorAndNotDamaged) {
  MemoryFolder folder;
  for (int step : {1, 2}) save_checkpoint(TinyModel(step).contents(), folder.path(), 0);
#ifndef __SANITIZE_ADDRESS__  // a sanitizer asks with a pipe for readable memory, and there is no file left for it
  int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  int refused = 0;
  for (int free = 0;; ++free) {
    struct rlimit low = old;
    low.rlim_cur = rlim_t(next + free);
    setrlimit(RLIMIT_NOFILE, &low);
    std::string error, reports;
    std::optional<Checkpoint> found;
    try {
      found = find_checkpoint(folder.path(), [&](auto& text) { reports += text; });
    } catch (const Error& e) {
      error = e.what();
    }
    setrlimit(RLIMIT_NOFILE, &old);
    EXPECT_EQ(reports, "") << free;
    if (error.empty()) {
      ASSERT_TRUE(found);
      EXPECT_EQ(found->step(), 2);
      break;
    }
    ++refused;
    EXPECT_NE(error.find("Too many open files"), std::string::npos) << error;
    EXPECT_NE(error.find(free == 0 ? "ulimit -n" : "To use an older checkpoint, move " + (folder / "step-000002")),
              std::string::npos)
        << error;
  }
  EXPECT_GT(refused, 1) << "the folder, and files in it";
#endif
  // Files replaced by a save are kept, too, while nobody knows them.
  rename_path(folder / "step-000002", folder / ".replaced-step-000002");
  ::mkdir((folder / "step-000002").c_str(), 0755);
  ASSERT_EQ(::symlink("manifest.json", (folder / "step-000002/manifest.json").c_str()), 0);  // a link to itself
  EXPECT_THROW(save_checkpoint(TinyModel(3).contents(), folder.path(), 0), SystemError);
  EXPECT_TRUE(path_exists(folder / ".replaced-step-000002/manifest.json"));
  EXPECT_TRUE(path_exists(folder / "step-000002"));
}
