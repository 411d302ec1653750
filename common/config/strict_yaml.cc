#include "common/config/strict_yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/printable.h"

namespace dapd {
namespace {

// Throws YAML::ParserException for parts that are not accepted.
class Restrictions : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw YAML::ParserException(mark, "only one document is accepted");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    OnNode(mark, anchor, nullptr);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    OnNode(mark, anchor, nullptr);
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& text) override {
    RefuseTag(mark, tag);
    OnNode(mark, anchor, &text);
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    OnNode(mark, anchor, nullptr);
    open_.push_back({.is_map = false});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    OnNode(mark, anchor, nullptr);
    open_.push_back({.is_map = true});
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // The state of an open map or sequence.
  struct Collection {
    bool is_map;
    bool key_is_next = true;
    std::set<std::string> keys;
  };

  // yaml-cpp's tags for values without a tag: "?", and "!" for a text in
  // quotes.
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw YAML::ParserException(
        mark,
        absl::StrCat("tags are not accepted, such as ",
                     Printable(tag),
                     "; put quotes around a text that begins with !"));
  }

  // `text` is the text of a scalar.
  void OnNode(const YAML::Mark& mark,
              YAML::anchor_t anchor,
              const std::string* text) {
    if (anchor != YAML::NullAnchor) {
      throw YAML::ParserException(mark, "anchors and aliases are not accepted");
    }
    if (open_.empty() || !open_.back().is_map) return;
    Collection& map = open_.back();
    if (map.key_is_next && text != nullptr && !map.keys.insert(*text).second) {
      throw YAML::ParserException(
          mark, absl::StrCat(Printable(*text), " occurs twice"));
    }
    map.key_is_next = !map.key_is_next;
  }

  int documents_ = 0;
  std::vector<Collection> open_;  // from the outermost in
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
