# find_package(gpuwatch) defines the target gpuwatch::gpuwatch.
if(NOT TARGET gpuwatch::gpuwatch)
  add_library(gpuwatch::gpuwatch SHARED IMPORTED)
  set_target_properties(gpuwatch::gpuwatch PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libgpuwatch.so"
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
endif()
