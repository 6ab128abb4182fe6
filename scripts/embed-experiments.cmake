# Writes a C++ source that holds the experiments: cmake -DOUT=FILE -DFOLDER=experiments -P embed-experiments.cmake
# A raw string literal ends at its delimiter, which no TOML file of ours holds.
file(GLOB files ${FOLDER}/*.toml)
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND rows "      {\"experiments/${name}\", R\"crest_toml(${text})crest_toml\"},\n")
endforeach()
file(WRITE ${OUT} "// Made by scripts/embed-experiments.cmake from experiments/*.toml.
#include \"lab/experiment.h\"

namespace crest::lab {

const std::vector<Source>& embedded_sources() {
  static const std::vector<Source> all = {
${rows}  };
  return all;
}

}  // namespace crest::lab
")
