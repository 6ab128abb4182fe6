// Where crest looks for libraries. An empty or relative entry would mean the current folder or a
// folder below it. Anybody with write access there could then make crest run their code.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "crest_binary.h"
#include "host/external.h"

using namespace crest;

namespace {

namespace fs = std::filesystem;

// The folders searched for the libraries of a program or library.
std::vector<std::string> searched_folders(const fs::path& file) {
  CommandOutput headers = run_command("readelf -d '" + file.string() + "'");
  EXPECT_NE(headers.out.find("(NEEDED)"), std::string::npos) << file << headers.out << headers.err;
  std::vector<std::string> folders;
  std::istringstream lines(headers.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("PATH)") == std::string::npos) continue;
    const size_t begin = line.find('['), end = line.find(']');
    std::istringstream entries(line.substr(begin + 1, end - begin - 1) + ":");
    for (std::string entry; std::getline(entries, entry, ':');) folders.push_back(entry);
  }
  return folders;
}

void expect_no_relative_folder(const fs::path& file) {
  for (auto& folder : searched_folders(file))
    EXPECT_TRUE(folder.starts_with("$ORIGIN") || folder.starts_with("/")) << file << " searches '" << folder << "'";
}

}  // namespace

// scripts/bundle.sh packs these as they are. Dist.RunsElsewhere looks at the installed program and
// at the archive.
TEST(LibraryPath, OfBuiltProgramsIsNotTheCurrentFolder) {
  EXPECT_EQ(searched_folders(crest::test::crest_binary()), std::vector<std::string>{"$ORIGIN/../lib"});
  for (auto& entry : fs::directory_iterator(fs::read_symlink("/proc/self/exe").parent_path()))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("test_"))
      expect_no_relative_folder(entry.path());
}
