#include "common/config/strict_yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

namespace dapd {
namespace {

// Throws YAML::ParserException where a text has what is not accepted.
class Restrictions : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw YAML::ParserException(mark, "only one document is accepted");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, anchor);
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string&,
                YAML::anchor_t anchor,
                const std::string&) override {
    Refuse(mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string&,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Refuse(mark, anchor);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark,
                  const std::string&,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Refuse(mark, anchor);
  }
  void OnMapEnd() override {}

 private:
  static void Refuse(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      throw YAML::ParserException(mark, "anchors and aliases are not accepted");
    }
  }
  int documents_ = 0;
};

}  // namespace

YAML::Node ParseStrictYaml(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Restrictions restrictions;
  while (parser.HandleNextDocument(restrictions)) {
  }
  return YAML::Load(text);
}

}  // namespace dapd
