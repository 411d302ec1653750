// The status page and the report, of one HTML file each
// (common/charts/html_page.h): page.html with the scripts of this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dapd {

// Asks its server for /status.json, /history.json and /answers.json.
const std::string& StatusPageHtml();
// The policy to send with it.
const std::string& StatusPagePolicy();

// Shows `data`, {"status", "history", "answers", "outcome", "config", ...} as
// report.js reads it, and asks nobody: the file can be opened from a disk or a
// mail.
std::string ReportHtml(const nlohmann::ordered_json& data);

}  // namespace dapd
