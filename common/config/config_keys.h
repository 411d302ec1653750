// The table of configuration keys. The YAML reader, the environment, --set, the
// dump, the suggestions for misspelt keys and docs/configuration.md derive from
// it. To add a key, add a field in config.h and a row in keys/.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/enum_names.h"
#include "common/config/config.h"

namespace dapd {

// The prefix of an entry of a list that names a file with further entries.
inline constexpr char kFilePrefix[] = "file://";

struct ConfigKey {
  using Target = std::variant<std::string*,
                              EnumVariable,
                              bool*,
                              int64_t*,
                              uint64_t*,
                              double*,
                              std::vector<std::string>*,
                              TeacherChoice*,
                              std::vector<TeacherModel>*,
                              std::vector<Term>*>;
  std::string name;  // "trainer.learning_rate"
  Target target;
  std::string help;
  // Numbers must lie in [min, max], for doubles in (min, max] if
  // `above_min`. Texts, names of an enum's values and the entries of lists must
  // be one of `choices` if there are any.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;
  std::vector<std::string> choices;
  // The text is, or may be, a path on this machine; for a list, the entries
  // that begin with kFilePrefix. "~" stands for the home folder
  // (common/base/user_path.h).
  bool is_path = false;
  // Whether a run may be resumed with another value, because the result does
  // not depend on it: the key says where things are, who helps, how much memory
  // they take, what is written or measured, how long to wait or how many steps
  // to take. The content of model and data is compared separately.
  bool may_change = false;
  // For a key that was added later: a run is bound to the value only if it is
  // not the default, so that runs of earlier versions, which did not have the
  // key, can be resumed.
  bool counts_unless_default = false;
  // The list is a command: entries may be equal, and the empty list stands for
  // none.
  bool is_command = false;

  ConfigKey IsPath() && {
    is_path = true;
    return std::move(*this);
  }
  ConfigKey MayChange() && {
    may_change = true;
    return std::move(*this);
  }
  ConfigKey IsCommand() && {
    is_command = true;
    return std::move(*this);
  }
  ConfigKey CountsUnlessDefault() && {
    counts_unless_default = true;
    return std::move(*this);
  }
};

// Returns rows that point into `config`, in the order of the documentation.
std::vector<ConfigKey> ConfigKeys(Config& config);

// TypeName returns "string", "path", "integer", ...; AcceptedValues the values
// that a key accepts, for messages and documentation.
std::string TypeName(const ConfigKey& key);
std::string AcceptedValues(const ConfigKey& key);

// Returns the value as YAML text.
std::string FormatValue(const ConfigKey& key);

}  // namespace dapd
