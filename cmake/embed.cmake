# crest_embed(LIBRARY FOLDER EXTENSION FUNCTION): compiles FOLDER/*.EXTENSION into LIBRARY; crest::FUNCTION() returns them
# by name (core/embedded.h). A new or changed file configures again by itself.
function(crest_embed library folder extension function)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.${extension})
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(rows "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND rows "      {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/embedded/${function}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
// Made by cmake/embed.cmake.
#include "core/embedded.h"

namespace crest {

const std::vector<EmbeddedFile>& @function@() {
  static const std::vector<EmbeddedFile> files = {
@rows@  };
  return files;
}

}  // namespace crest
]])
  target_sources(${library} PRIVATE ${source})
endfunction()
