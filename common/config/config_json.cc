#include "common/config/config_json.h"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "common/config/config_text.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// yaml-cpp gives a text in quotes this tag.
constexpr char kQuotedTag[] = "!";

Json ScalarJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == kQuotedTag) return text;
  if (text == "true" || text == "false") return text == "true";
  int64_t integer = 0;
  if (YAML::convert<int64_t>::decode(node, integer)) return integer;
  uint64_t large = 0;
  if (YAML::convert<uint64_t>::decode(node, large)) return large;
  double number = 0;
  if (ParseDouble(text, &number) && std::isfinite(number)) return number;
  return text;
}

Json NodeJson(const YAML::Node& node) {
  if (node.IsMap()) {
    Json map = Json::object();
    for (const auto& entry : node) {
      map[entry.first.Scalar()] = NodeJson(entry.second);
    }
    return map;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& item : node) list.push_back(NodeJson(item));
    return list;
  }
  return node.IsScalar() ? ScalarJson(node) : Json();
}

}  // namespace

// The dump is the one text of a configuration; its types are those of YAML.
Json ConfigJson(const LoadedConfig& loaded) {
  return NodeJson(YAML::Load(DumpConfig(loaded)));
}

}  // namespace dapd
