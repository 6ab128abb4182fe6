#include "core/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"

using namespace crest;

namespace {

// The message of the error; "": none.
std::string message(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
std::string refusal(const std::string& file) {
  return message([&] { require_no_run_file(file); });
}
std::string problem_of_place(const std::string& file) {
  return message([&] { require_place_for(file, "--out"); });
}

}  // namespace

TEST(OutputFile, NeverReplacesAFileOfARun) {
  TemporaryFolder dir;
  auto write = [&](const std::string& name) {
    create_directories(parent_path(dir / name));
    write_file_synced(dir / name, "x");
  };
  for (const char* name :
       {"run/config.toml", "run/log.jsonl", "run/loss.svg", "run/samples.txt", "run/tensorboard/events.1",
        "run/checkpoints/latest", "run/report.html", "step-000004/manifest.json", "step-000004/state.json",
        "step-000004/model.safetensors", "site/manifest.json", "site/r.html", "data/meta.json", "data/tokenizer.json",
        "data/train-000000.bin", "data/notes.txt", "other/config.toml"})
    write(name);
  for (const char* name : {"run/config.toml", "run/log.jsonl", "run/loss.svg", "run/samples.txt",
                           "run/tensorboard/events.1", "run/checkpoints/latest"})
    EXPECT_NE(refusal(dir / name).find("a file of a run"), std::string::npos) << name;
  EXPECT_NE(refusal(dir / "step-000004/model.safetensors").find("a file of a checkpoint"), std::string::npos);
  for (const char* name : {"data/meta.json", "data/tokenizer.json", "data/train-000000.bin"})
    EXPECT_NE(refusal(dir / name).find("a file of prepared data"), std::string::npos) << name;
  // By another name, too.
  std::filesystem::create_symlink("run/config.toml", dir / "link");
  std::filesystem::create_directory_symlink("run", dir / "folder");
  EXPECT_NE(refusal(dir / "link").find("a file of a run"), std::string::npos);
  EXPECT_NE(refusal(dir / "folder/log.jsonl").find("a file of a run"), std::string::npos);

  for (const char* name :
       {"run/report.html", "run/new.json", "data/notes.txt", "other/config.toml", "site/r.html", "absent/x"})
    EXPECT_EQ(refusal(dir / name), "") << name;
}

TEST(OutputFile, HasAPlaceBeforeLongWork) {
  TemporaryFolder dir;
  create_directories(dir / "folder");
  create_directories(dir / "run/checkpoints");
  for (const char* name : {"run/config.toml", "file"}) write_file_synced(dir / name, "x");

  EXPECT_EQ(problem_of_place(dir / "new.json"), "");
  EXPECT_EQ(problem_of_place(dir / "file"), "");
  EXPECT_EQ(problem_of_place("file in the working folder"), "");
  EXPECT_NE(problem_of_place(dir / "absent/x").find("no such folder"), std::string::npos);
  EXPECT_NE(problem_of_place(dir / "file/x").find("no such folder"), std::string::npos);
  EXPECT_NE(problem_of_place(dir / "folder").find("is a folder, not a file"), std::string::npos);
  EXPECT_NE(problem_of_place(dir / "run/config.toml").find("a file of a run"), std::string::npos);
  EXPECT_NE(problem_of_place("/sys/x").find("cannot create"), std::string::npos);
  EXPECT_NE(problem_of_place("/dev/null").find("is a device"), std::string::npos);
  EXPECT_FALSE(path_exists(dir / "new.json") || path_exists(dir / "new.json.tmp"));
}
