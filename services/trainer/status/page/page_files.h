// The files of the page as text; page_files.cc is made of them by
// embed_files.cmake.
#pragma once

namespace dapd {

extern const char kPageHtml[];
extern const char kStyleCss[];
extern const char kDomJs[];
extern const char kScaleJs[];
extern const char kChartJs[];
extern const char kIntervalPlotJs[];
extern const char kPanelsJs[];
extern const char kStatusViewJs[];
extern const char kReportJs[];
extern const char kMainJs[];

}  // namespace dapd
