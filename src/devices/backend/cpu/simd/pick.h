// Every file of this folder is compiled once per instruction set, in its own namespace
// crest::cpu::CREST_ISA; it exports one table of function pointers, and the host entry picks the
// table of the machine it runs on.
#pragma once
#include "host/isa.h"

// Declares the table `table` of type `Type` once per instruction set (inside namespace crest::cpu).
#define CREST_SIMD_TABLE(Type, table) \
  namespace generic {                 \
  extern const Type table;            \
  }                                   \
  namespace avx2 {                    \
  extern const Type table;            \
  }                                   \
  namespace avx512 {                  \
  extern const Type table;            \
  }

// The table of the vector kernels of `isa` (generic, avx2 or avx512). Plans may read its data also
// for kernels the machine cannot run. For host files only (the definitions come with the library
// crest_lib).
#if defined(CREST_HAVE_avx2) && defined(CREST_HAVE_avx512)
#define CREST_SIMD_OF(isa, table)                              \
  ((isa) == ::crest::Isa::avx512 ? ::crest::cpu::avx512::table \
   : (isa) == ::crest::Isa::avx2 ? ::crest::cpu::avx2::table   \
                                 : ::crest::cpu::generic::table)
#else
#define CREST_SIMD_OF(isa, table) ((void)(isa), ::crest::cpu::generic::table)
#endif
// The table of this process.
#define CREST_SIMD_PICK(table) CREST_SIMD_OF(::crest::running_vector_isa(), table)
