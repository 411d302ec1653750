# cmake -DFROM=kernels.cu -DTO=kernels.cc [-DINSTEAD_OF=TEXT -DPLANT=TEXT -DENDING=Name] -P host_source.cmake
#
# Translates CUDA code to C++ for the cuda_runtime.h of this folder:
#   kernel<<<grid, block, bytes, stream>>>(args)  becomes  Launch("kernel", kernel, grid, ...)(args)
#   __shared__ type name[size];                   becomes  auto& name = SharedVariable<type[size]>(...);
#   extern __shared__ type name[];                becomes  auto* name = DynamicShared<type>();
# Lines keep their numbers. With INSTEAD_OF, its first occurrence in the file becomes
# PLANT, a mistake for the tests to find, and ENDING is appended to the names of the
# launchers, so that they can be linked beside the true launchers. It fails if the text does
# not occur.
file(READ ${FROM} text)

if(DEFINED INSTEAD_OF)
  string(FIND "${text}" "${INSTEAD_OF}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${FROM} has no '${INSTEAD_OF}' any more: plant another mistake")
  endif()
  string(LENGTH "${INSTEAD_OF}" length)
  math(EXPR behind "${at} + ${length}")
  string(SUBSTRING "${text}" 0 ${at} before)
  string(SUBSTRING "${text}" ${behind} -1 after)
  string(REGEX REPLACE "(DapdCuda[A-Za-z0-9]+)" "\\1${ENDING}" text "${before}${PLANT}${after}")
endif()

string(REGEX REPLACE
  "([A-Za-z_0-9]+(<[^<>;]*>)?)([ \n]*)<<<(([^>]|>[^>]|>>[^>])*)>>>"
  "::dapd::fake::Launch(\"\\1\",\\3 \\1, \\4)" text "${text}")

string(REGEX REPLACE
  "extern +__shared__ +(alignas\\([0-9]+\\) +)?([^;()[]*[^ ;()[]) +([A-Za-z_0-9]+)\\[\\];"
  "auto* \\3 = ::dapd::fake::DynamicShared<\\2>();" text "${text}")

set(array "((\\[[^]]*\\])*)")
set(variable "static char \\2_site = 0; auto& \\2 = ::dapd::fake::SharedVariable")
string(REGEX REPLACE "__shared__ +([^;()[]*[ *])([A-Za-z_0-9]+)${array};"
  "${variable}<\\1\\3>(\"\\2\", &\\2_site);" text "${text}")
set(variable "static char \\3_site = 0; auto& \\3 = ::dapd::fake::SharedVariable")
string(REGEX REPLACE "__shared__ +alignas\\(([0-9]+)\\) +([^;()[]*[ *])([A-Za-z_0-9]+)${array};"
  "${variable}<\\2\\4, \\1>(\"\\3\", &\\3_site);" text "${text}")

file(WRITE ${TO} "#line 1 \"${FROM}\"\n${text}")
