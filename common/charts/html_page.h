// Pages of one HTML file each: style, scripts and data are put into a template,
// so that a browser loads nothing else, under a content security policy that
// lets it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// A page without its data. Its template has {{policy}}, {{style}}, {{data}} and
// {{script}}, each once, where kStyleCss (chart_files.h) and the others belong.
class HtmlPage {
 public:
  // `scripts`: in the order in which they use each other; they share one scope
  // of their own.
  HtmlPage(std::string html, const std::vector<absl::string_view>& scripts);

  // Everything that the page does not need is forbidden. `may_ask_server`: it
  // may fetch from where it came.
  std::string Policy(bool may_ask_server) const;

  // `json`: a JSON text, which the scripts find in the element "data".
  std::string With(const std::string& json, bool may_ask_server) const;
  // Asks nobody: can be opened from a disk or a mail.
  std::string With(const nlohmann::ordered_json& data) const;

 private:
  const std::string html_;
  const std::string script_;
};

}  // namespace dapd
