// CUDA's libraries are opened at run time: the binary starts on any machine, names missing ones,
// and can be given other versions. A library given by itself (--cublaslt, --cudnn) is taken from
// there or not at all. Search order of the others: --libraries, CREST_LIBRARIES (folders, ':'
// between them), folders of the CUDA toolkit, nvidia/* of Python environments (the program's own,
// the active one, others), the system's loader.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace crest::cuda {

struct Library {
  void* handle = nullptr;  // null: not found, see `problem`
  std::string path;        // where it was found
  std::string problem;     // the wanted library (name, major version) and the searched places
};

// stem and major version as in libSTEM.so.MAJOR, for example ("cublasLt", 13). Opened once per
// process; thread safe.
const Library& library(const std::string& stem, int major);
// A function of an open library; throws an Error naming the library and its path when it has no
// such function.
void* symbol(const Library& library, const char* name);

// Where a user wants libraries from.
struct LibraryChoice {
  std::vector<std::string> folders;          // looked in before all others (--libraries)
  std::map<std::string, std::string> paths;  // of a stem: the file or its folder (--cublaslt: cublasLt)
  bool operator==(const LibraryChoice&) const = default;
};
// Throws a usage error when libraries were opened with another choice: a process opens them once.
void choose_libraries(const LibraryChoice& choice);
LibraryChoice chosen_libraries();
// The existing folders searched by library()
// before the system's loader, in order.
std::vector<std::string> library_folders();
// nvidia/*/lib of the Python environment with this program.
std::vector<std::string> folders_beside(const std::string& program);
// Names for sets of libraries, instead of folders: "toolkit", "python", "system".
const std::vector<std::string>& library_places();
// The existing folders of such a place, or of
// DIR[:DIR]. system: where its loader finds cuBLASLt.
std::vector<std::string> folders_of_place(const std::string& place);
// Whether one of the folders has a libSTEM.so.
bool holds_library(const std::vector<std::string>& folders, const std::string& stem);
// library() without the memory of earlier calls: for tests.
Library open_library(const std::string& stem, int major);

}  // namespace crest::cuda
