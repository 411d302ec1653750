// Declares the helper program of this folder, as text. embed_files.cmake
// generates copy_files.cc from it.
#pragma once

namespace dapd {

extern const char kObjectStorePy[];

}  // namespace dapd
