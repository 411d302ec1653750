#include "services/trainer/status/page/page.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/base/json.h"
#include "common/base/sha256.h"
#include "services/trainer/status/page/page_files.h"

namespace dapd {
namespace {

// One scope for all scripts, in the order in which they use each other.
const std::string& Script() {
  static const std::string& script =
      *new std::string(absl::StrCat("(() => {\n\"use strict\";\n",
                                    kDomJs,
                                    kScaleJs,
                                    kChartJs,
                                    kIntervalPlotJs,
                                    kPanelsJs,
                                    kStatusViewJs,
                                    kReportJs,
                                    kMainJs,
                                    "})();\n"));
  return script;
}

// 'sha256-...' of an inline element's text, as CSP level 2 has it.
std::string HashSource(const std::string& text) {
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))),
      "'");
}

// Everything that is not named is forbidden.
std::string Policy(bool may_ask_server) {
  return absl::StrCat("default-src 'none'; script-src ",
                      HashSource(Script()),
                      "; style-src ",
                      HashSource(kStyleCss),
                      "; img-src data:",
                      may_ask_server ? "; connect-src 'self'" : "",
                      "; base-uri 'none'; form-action 'none'; "
                      "require-trusted-types-for 'script'; trusted-types "
                      "'none'");
}

std::string Assemble(const std::string& policy, const std::string& data) {
  // "<" could end the script element that holds the data.
  const std::string escaped = absl::StrReplaceAll(data, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kPageHtml,
                             {{"{{policy}}", policy},
                              {"{{style}}", kStyleCss},
                              {"{{data}}", escaped},
                              {"{{script}}", Script()}});
}

}  // namespace

const std::string& StatusPageHtml() {
  static const std::string& html =
      *new std::string(Assemble(Policy(/*may_ask_server=*/true), "null"));
  return html;
}

const std::string& StatusPagePolicy() {
  // frame-ancestors has no effect, and is complained about, inside a page.
  static const std::string& policy = *new std::string(absl::StrCat(
      Policy(/*may_ask_server=*/true), "; frame-ancestors 'none'"));
  return policy;
}

std::string ReportHtml(const nlohmann::ordered_json& data) {
  return Assemble(
      Policy(/*may_ask_server=*/false),
      data.dump(
          -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace dapd
