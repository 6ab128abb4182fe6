// CUDA's libraries are opened at run time: the binary starts on any machine, names what is missing, and can be given
// other versions. Search order: --libraries, CREST_LIBRARIES (folders, ':' between them), folders of the CUDA toolkit,
// nvidia/* of the Python environment (PyTorch's), the system's loader.
#pragma once
#include <string>
#include <vector>

namespace crest::cuda {

struct Library {
  void* handle = nullptr;  // null: not found, see `problem`
  std::string path;        // where it was found
  std::string problem;     // what was wanted (name, major version) and where it was looked for
};

// stem and major version as in libSTEM.so.MAJOR, for example ("cublasLt", 13). Opened once per process; thread safe.
const Library& library(const std::string& stem, int major);
// A function of an open library; throws an Error naming the library and its path when it has no such function.
void* symbol(const Library& library, const char* name);

// Folders to look in before all others (--libraries). Throws a usage error when libraries were opened with others: a
// process opens them once.
void prefer_library_folders(const std::vector<std::string>& folders);
// The folders that library() looks in before it asks the system's loader, in order; only those that exist.
std::vector<std::string> library_folders();
// What a set of libraries can be called instead of by its folders: "toolkit", "python", "system".
const std::vector<std::string>& library_places();
// The folders of such a place, or of DIR[:DIR]; only those that exist. system: where its loader finds cuBLASLt.
std::vector<std::string> folders_of_place(const std::string& place);
// Whether one of the folders has a libSTEM.so.
bool holds_library(const std::vector<std::string>& folders, const std::string& stem);
// library() without the memory of earlier calls: for tests.
Library open_library(const std::string& stem, int major);

}  // namespace crest::cuda
