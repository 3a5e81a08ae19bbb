# Makes links to PROGRAM, which holds the tests of a folder, beside it: cmake -DPROGRAM=... -DNAMES="a;b" -P link_tests.cmake
get_filename_component(folder ${PROGRAM} DIRECTORY)
get_filename_component(file ${PROGRAM} NAME)
foreach(name ${NAMES})
  file(CREATE_LINK ${file} ${folder}/${name} SYMBOLIC)
endforeach()
