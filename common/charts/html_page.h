// Builds pages of one HTML file each: style, scripts and data are inserted into
// a template. The page's content security policy forbids a browser to load
// anything else.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Represents a page without its data. Its template contains {{policy}},
// {{style}}, {{data}} and {{script}} once each, at the places of the policy, of
// kStyleCss (chart_files.h), of the data and of the scripts.
class HtmlPage {
 public:
  // `scripts` are in the order in which they use each other; they share a scope
  // of their own.
  HtmlPage(std::string html, const std::vector<absl::string_view>& scripts);

  // The policy forbids everything that the page does not need. With
  // `may_ask_server` the page may fetch from its own server.
  std::string Policy(bool may_ask_server) const;

  // `json` is a JSON text, which the scripts find in the element "data".
  std::string With(const std::string& json, bool may_ask_server) const;
  // The page asks no server: it can be opened from a disk or a mail.
  std::string With(const nlohmann::ordered_json& data) const;

 private:
  const std::string html_;
  const std::string script_;
};

}  // namespace dapd
