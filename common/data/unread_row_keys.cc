#include "common/data/unread_row_keys.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

constexpr size_t kMaxUnreadKeys = 20;  // number of keys that are kept and named

}  // namespace

template <typename Json>
void UnreadRowKeys::Add(const Json& row,
                        std::initializer_list<const char*> known,
                        const std::string& where) {
  if (!row.is_object()) return;
  for (const auto& item : row.items()) {
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const char* key) {
          return item.key() == key;
        });
    // Null, "", [] and {} hold nothing.
    if (is_known || item.value().empty() || item.value() == "" ||
        first_.size() == kMaxUnreadKeys) {
      continue;
    }
    first_.emplace(Printable(item.key()), where);
  }
}

template void UnreadRowKeys::Add(const nlohmann::json&,
                                 std::initializer_list<const char*>,
                                 const std::string&);
template void UnreadRowKeys::Add(const nlohmann::ordered_json&,
                                 std::initializer_list<const char*>,
                                 const std::string&);

void UnreadRowKeys::Report(const std::string& path) const {
  if (first_.empty()) return;
  const std::string keys =
      absl::StrJoin(first_, ", ", [](std::string* out, const auto& key) {
        absl::StrAppend(out, key.first, " (first in ", key.second, ")");
      });
  LogWarning(absl::StrCat(path, ": keys that are not read: ", keys));
}

}  // namespace dapd
