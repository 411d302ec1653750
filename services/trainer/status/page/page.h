// The status page and the report, one HTML file each
// (common/charts/html_page.h): page.html with the scripts of this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dapd {

// Returns the status page, which asks its server for /status.json,
// /history.json and /answers.json.
const std::string& StatusPageHtml();
// Returns the Content-Security-Policy to send with it.
const std::string& StatusPagePolicy();

// Returns the report on `data`, {"status", "history", "answers", "outcome",
// "config", ...} the input of report.js. It needs no server, and can be opened
// from a disk or a mail.
std::string ReportHtml(const nlohmann::ordered_json& data);

}  // namespace dapd
