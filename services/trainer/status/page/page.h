// The status page and the report as one HTML file each: page.html with the
// style and the scripts of this folder put in, so that a browser loads nothing
// else, and a content security policy that lets it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dapd {

// Asks its server for /status.json and /history.json.
const std::string& StatusPageHtml();
// The policy to send with it.
const std::string& StatusPagePolicy();

// Shows `data`, {"status", "history", "outcome", "config", ...} as report.js
// reads it, and asks nobody: the file can be opened from a disk or a mail.
std::string ReportHtml(const nlohmann::ordered_json& data);

}  // namespace dapd
