// The files of the page as text, from which page_files.cc is made
// (common/charts/embed_files.cmake). Files that other pages share are in
// common/charts/chart_files.h.
#pragma once

namespace dapd {

extern const char kPageHtml[];
extern const char kIntervalPlotJs[];
extern const char kPanelsJs[];
extern const char kAnswersViewJs[];
extern const char kStatusViewJs[];
extern const char kReportJs[];
extern const char kMainJs[];

}  // namespace dapd
