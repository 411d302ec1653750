#include "services/trainer/status/page/page.h"

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/charts/chart_files.h"
#include "common/charts/html_page.h"
#include "services/trainer/status/page/page_files.h"

namespace dapd {
namespace {

const HtmlPage& Page() {
  static const HtmlPage& page = *new HtmlPage(kPageHtml,
                                              {kDomJs,
                                               kScaleJs,
                                               kChartJs,
                                               kControlsJs,
                                               kIntervalPlotJs,
                                               kPanelsJs,
                                               kAnswersViewJs,
                                               kStatusViewJs,
                                               kReportJs,
                                               kMainJs});
  return page;
}

}  // namespace

const std::string& StatusPageHtml() {
  static const std::string& html =
      *new std::string(Page().With("null", /*may_ask_server=*/true));
  return html;
}

const std::string& StatusPagePolicy() {
  // Inside a page, frame-ancestors has no effect, and browsers complain about
  // it.
  static const std::string& policy = *new std::string(absl::StrCat(
      Page().Policy(/*may_ask_server=*/true), "; frame-ancestors 'none'"));
  return policy;
}

std::string ReportHtml(const nlohmann::ordered_json& data) {
  return Page().With(data);
}

}  // namespace dapd
