# How every target of this project is compiled. Warnings and sanitizers hold for all of them without being asked for;
# moetax_options brings the generated headers and what every public header may include.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${MOETAX_WERROR}>:-Werror>)
if(MOETAX_SANITIZE)
  set(MOETAX_SANITIZE_FLAGS -fsanitize=${MOETAX_SANITIZE} -fno-omit-frame-pointer)
  if(MOETAX_SANITIZE MATCHES "undefined")
    list(APPEND MOETAX_SANITIZE_FLAGS -fno-sanitize-recover=undefined)
  endif()
  # GCC's flow analysis loses its way in instrumented standard headers.
  add_compile_options(${MOETAX_SANITIZE_FLAGS} $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(${MOETAX_SANITIZE_FLAGS})
endif()

add_library(moetax_options INTERFACE)
target_compile_features(moetax_options INTERFACE cxx_std_20)
target_include_directories(moetax_options INTERFACE "${PROJECT_BINARY_DIR}/include")
target_link_libraries(moetax_options INTERFACE fmt::fmt Threads::Threads)
