// The files of the page as text; page_files.cc is made of them
// (common/charts/embed_files.cmake), those that other pages share are in
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
