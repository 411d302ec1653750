#include "common/charts/html_page.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "common/base/json.h"
#include "common/base/sha256.h"
#include "common/charts/chart_files.h"

namespace dapd {
namespace {

// Returns 'sha256-...' of an inline element's text, as CSP level 2 defines it.
std::string HashSource(const std::string& text) {
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))),
      "'");
}

}  // namespace

HtmlPage::HtmlPage(std::string html,
                   const std::vector<absl::string_view>& scripts)
    : html_(std::move(html)),
      script_(absl::StrCat("(() => {\n\"use strict\";\n",
                           absl::StrJoin(scripts, ""),
                           "})();\n")) {}

std::string HtmlPage::Policy(bool may_ask_server) const {
  return absl::StrCat("default-src 'none'; script-src ",
                      HashSource(script_),
                      "; style-src ",
                      HashSource(kStyleCss),
                      "; img-src data:",
                      may_ask_server ? "; connect-src 'self'" : "",
                      "; base-uri 'none'; form-action 'none'; "
                      "require-trusted-types-for 'script'; trusted-types "
                      "'none'");
}

std::string HtmlPage::With(const std::string& json, bool may_ask_server) const {
  // "<" could end the script element that holds the data.
  const std::string escaped = absl::StrReplaceAll(json, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(html_,
                             {{"{{policy}}", Policy(may_ask_server)},
                              {"{{style}}", kStyleCss},
                              {"{{data}}", escaped},
                              {"{{script}}", script_}});
}

std::string HtmlPage::With(const nlohmann::ordered_json& data) const {
  return With(
      data.dump(
          -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
      /*may_ask_server=*/false);
}

}  // namespace dapd
