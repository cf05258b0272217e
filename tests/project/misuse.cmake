# Code that must not compile. Each file is compiled twice: as it is (the control, must succeed), and with MOETAX_MISUSE
# defined, which must fail with the given message.
set(includes $<TARGET_PROPERTY:moetax,INTERFACE_INCLUDE_DIRECTORIES> $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
set(include_flags "-I$<JOIN:$<FILTER:${includes},EXCLUDE,^$>,;-I>")
set(compile ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -Werror=unused-result)

function(moetax_misuse name message)
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/misuse/${name}.cpp")
  add_test(NAME project/misuse_${name}_control COMMAND ${compile} "${include_flags}" "${source}"
    COMMAND_EXPAND_LISTS)
  add_test(NAME project/misuse_${name} COMMAND ${compile} "${include_flags}" -DMOETAX_MISUSE "${source}"
    COMMAND_EXPAND_LISTS)
  set_tests_properties(project/misuse_${name} PROPERTIES PASS_REGULAR_EXPRESSION "error: [^\n]*(${message})")
  set_tests_properties(project/misuse_${name}_control project/misuse_${name} PROPERTIES LABELS project TIMEOUT 60)
endfunction()

moetax_misuse(handle_copied "use of deleted function|call to deleted constructor")
moetax_misuse(handle_not_moved "use of deleted function|call to deleted constructor")
moetax_misuse(handle_dropped "nodiscard|unused-result")
moetax_misuse(result_ignored "nodiscard|unused-result")
moetax_misuse(buffer_copied "use of deleted function|call to deleted constructor")
moetax_misuse(const_rows_written "conversion|convert")
