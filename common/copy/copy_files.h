// The helper program of this folder, as text. copy_files.cc is made of it by
// embed_files.cmake.
#pragma once

namespace dapd {

extern const char kObjectStorePy[];

}  // namespace dapd
