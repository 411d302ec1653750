// The files of the comparison's page as text, from which compare_files.cc is
// made (common/charts/embed_files.cmake).
#pragma once

namespace dapd {

extern const char kCompareHtml[];
extern const char kCompareJs[];

}  // namespace dapd
