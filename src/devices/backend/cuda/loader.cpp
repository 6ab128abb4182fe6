#include "backend/cuda/loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "core/error.h"
#include "core/text.h"

namespace crest::cuda {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Entries `prefix*` in `parent`, the highest version (last in the alphabet) first; folders, or
// anything.
std::vector<fs::path> entries_with_prefix(const fs::path& parent, const std::string& prefix, bool folders = true) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(parent, fs::directory_options::skip_permission_denied, ignored);
       !ignored && it != fs::directory_iterator(); it.increment(ignored)) {
    std::error_code not_a_folder;
    if (it->path().filename().string().starts_with(prefix) && (!folders || it->is_directory(not_a_folder)))
      found.push_back(it->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

class Folders {
 public:
  void add(const fs::path& folder) {
    std::error_code ignored;
    if (folder.empty() || !fs::is_directory(folder, ignored)) return;
    fs::path real = fs::canonical(folder, ignored);
    if (ignored || std::find(seen_.begin(), seen_.end(), real) != seen_.end()) return;
    seen_.push_back(real);
    list.push_back(folder.string());
  }
  // A CUDA toolkit.
  void add_toolkit(const fs::path& root) {
    if (root.empty()) return;
    for (const char* sub : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "extras/CUPTI/lib64"})
      add(root / sub);
  }
  // The nvidia-* wheels in a folder of packages: PACKAGES/nvidia/*/lib.
  void add_wheels(const fs::path& packages) {
    for (auto& wheel : entries_with_prefix(packages / "nvidia", "")) add(wheel / "lib");
  }
  // The nvidia-* wheels below a Python prefix: PREFIX/lib/python3.*/site-packages/nvidia/*/lib.
  void add_python(const fs::path& prefix) {
    if (prefix.empty()) return;
    for (auto& python : entries_with_prefix(prefix / "lib", "python3"))
      for (const char* packages : {"site-packages", "dist-packages"}) add_wheels(python / packages);
  }
  std::vector<std::string> list;

 private:
  std::vector<fs::path> seen_;
};

// Wheels lie next to each other in many folders: .../nvidia/*/lib stands for them.
std::string summary(const std::vector<std::string>& folders) {
  std::vector<std::string> shown;
  for (auto& folder : folders) {
    fs::path path = folder, package = path.parent_path();
    bool wheel = package.parent_path().filename() == "nvidia";
    std::string text = wheel ? (package.parent_path() / "*" / path.filename()).string() : folder;
    if (std::find(shown.begin(), shown.end(), text) == shown.end()) shown.push_back(text);
  }
  return join(shown, ", ");
}

std::mutex mutex;                                       // of the next line
std::map<std::pair<std::string, int>, Library> opened;  // addresses of map nodes stay
LibraryChoice chosen;

std::string last_problem() {
  const char* text = dlerror();
  return text ? text : "unknown reason";
}

}  // namespace

static void add_toolkits(Folders& f) {
  f.add_toolkit(variable("CUDA_HOME"));
  f.add_toolkit(variable("CUDA_PATH"));
  f.add_toolkit("/usr/local/cuda");
  for (auto& versioned : entries_with_prefix("/usr/local", "cuda-")) f.add_toolkit(versioned);
}

// The environment of the program, active or not: PREFIX/bin/crest, or as its wheel installs it,
// PREFIX/lib/python3.*/site-packages/crest/bin/crest. Anybody may have written next to the folder
// of an unpacked archive, so only a package has neighbors.
static void add_own(Folders& f, const fs::path& program) {
  const fs::path above = program.parent_path().parent_path();
  if (above.empty()) return;
  std::error_code ignored;
  if (fs::exists(above / "__init__.py", ignored)) f.add_wheels(above.parent_path());
  f.add_python(above);
}

static void add_pythons(Folders& f) {
  std::error_code unknown;
  add_own(f, fs::read_symlink("/proc/self/exe", unknown));
  f.add_python(variable("VIRTUAL_ENV"));
  f.add_python(variable("CONDA_PREFIX"));
  for (auto& folder : split(variable("PATH"), ':')) {
    std::error_code ignored;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", ignored))
      f.add_python(fs::path(folder).parent_path());
  }
  if (std::string home = variable("HOME"); !home.empty()) {
    f.add_python(fs::path(home) / ".local");
    std::string pyenv = variable("PYENV_ROOT");
    for (auto& version : entries_with_prefix(fs::path(pyenv.empty() ? home + "/.pyenv" : pyenv) / "versions", ""))
      f.add_python(version);
  }
  f.add_python("/usr/local");
}

// Without keeping a handle: only the folder is needed.
static void add_system(Folders& f) {
  for (int major : {13, 12}) {
    void* handle = dlopen(fmt::format("libcublasLt.so.{}", major).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!handle) continue;
    if (char origin[4096]; dlinfo(handle, RTLD_DI_ORIGIN, origin) == 0) f.add(origin);
    dlclose(handle);
  }
}

std::vector<std::string> library_folders() {
  Folders f;
  for (auto& folder : chosen.folders) f.add(folder);
  for (auto& folder : split(variable("CREST_LIBRARIES"), ':')) f.add(folder);
  add_toolkits(f);
  add_pythons(f);
  return f.list;
}

std::vector<std::string> folders_beside(const std::string& program) {
  Folders f;
  add_own(f, program);
  return f.list;
}

const std::vector<std::string>& library_places() {
  static const std::vector<std::string> places = {"toolkit", "python", "system"};
  return places;
}

std::vector<std::string> folders_of_place(const std::string& place) {
  Folders f;
  if (place == "toolkit")
    add_toolkits(f);
  else if (place == "python")
    add_pythons(f);
  else if (place == "system")
    add_system(f);
  else
    for (auto& folder : split(place, ':')) f.add(folder);
  return f.list;
}

bool holds_library(const std::vector<std::string>& folders, const std::string& stem) {
  for (auto& folder : folders)
    if (!entries_with_prefix(folder, "lib" + stem + ".so", false).empty()) return true;
  return false;
}

// A named library, or nothing: another
// version would be measured under its name.
static Library open_named(const fs::path& named, const std::string& file) {
  std::error_code ignored;
  std::string path = fs::is_directory(named, ignored) ? (named / file).string() : named.string();
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, path, ""};
  return {nullptr, "", fmt::format("no usable {} where it was named: {}", file, last_problem())};
}

Library open_library(const std::string& stem, int major) {
  std::string file = fmt::format("lib{}.so.{}", stem, major);
  if (auto named = chosen.paths.find(stem); named != chosen.paths.end()) return open_named(named->second, file);
  std::vector<std::string> folders = library_folders(), broken;
  for (auto& folder : folders) {
    std::string path = (fs::path(folder) / file).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, path, ""};
    broken.push_back(last_problem());
  }
  if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    std::string path = file;
    // The system's loader knows where it found the file.
    if (char origin[4096]; dlinfo(handle, RTLD_DI_ORIGIN, origin) == 0) path = (fs::path(origin) / file).string();
    return {handle, path, ""};
  }
  broken.push_back(last_problem());
  return {
      nullptr, "",
      fmt::format("no usable {} (library {}, major version {}): {}. Looked in {}{}the system's folders. Install it, or "
                  "name its folder in --libraries or CREST_LIBRARIES.",
                  file, stem, major, join(broken, "; "), summary(folders), folders.empty() ? "" : " and ")};
}

const Library& library(const std::string& stem, int major) {
  std::lock_guard lock(mutex);
  auto [it, added] = opened.try_emplace({stem, major});
  if (added) it->second = open_library(stem, major);
  return it->second;
}

void choose_libraries(const LibraryChoice& choice) {
  std::lock_guard lock(mutex);
  if (choice == chosen) return;
  if (!opened.empty())
    fail_usage("this process has opened its libraries already", "--libraries, --cublaslt, --cudnn",
               "crest compare --a '--cublaslt DIR' --b '--cublaslt DIR' measures in two processes; so does crest bench "
               "--peer 'crest bench --libraries ...'.");
  chosen = choice;
}

LibraryChoice chosen_libraries() {
  std::lock_guard lock(mutex);
  return chosen;
}

void* symbol(const Library& library, const char* name) {
  if (!library.handle) fail(library.problem);
  dlerror();
  void* address = dlsym(library.handle, name);
  if (!address)
    fail(fmt::format("the library has no function {}", name), library.path,
         "It is too old or damaged: name the folder of another version in --libraries or CREST_LIBRARIES.");
  return address;
}

}  // namespace crest::cuda
