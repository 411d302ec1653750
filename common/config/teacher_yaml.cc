#include "common/config/teacher_yaml.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/user_path.h"
#include "common/config/value_reader.h"
#include "common/config/yaml_fields.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

constexpr size_t kFirstPort = 7011;
constexpr size_t kFirstMetricsPort = 9111;
constexpr int64_t kMostWorkers = 256;

Field PathField(std::string* target) {
  return [target](const YAML::Node& node) -> std::string {
    if (!node.IsScalar()) return "is not a path";
    std::string path = node.Scalar();
    if (std::string wrong = ExpandUserPath(&path); !wrong.empty()) {
      return wrong;
    }
    *target = std::move(path);
    return "";
  };
}

Field AddressesField(std::vector<std::string>* target) {
  return [target](const YAML::Node& node) -> std::string {
    target->clear();
    if (node.IsScalar()) target->push_back(node.Scalar());
    for (const YAML::Node& item : node) {
      if (!node.IsSequence() || !item.IsScalar()) return "is not a list";
      target->push_back(item.Scalar());
    }
    if (target->empty()) return "the list is empty";
    std::set<std::string> seen;
    for (std::string& address : *target) {
      if (std::string wrong = ExpandFileAddress(&address); !wrong.empty()) {
        return wrong;
      }
      if (!seen.insert(address).second) {
        return absl::StrCat("'", address, "' occurs twice");
      }
    }
    return "";
  };
}

}  // namespace

std::string ReadTeacher(const YAML::Node& node,
                        size_t index,
                        TeacherModel* teacher) {
  teacher->listen = absl::StrCat("127.0.0.1:", kFirstPort + index);
  teacher->metrics_listen =
      absl::StrCat("127.0.0.1:", kFirstMetricsPort + index);
  const std::string problem =
      ReadMap(node,
              {{"name", TextField(&teacher->name)},
               {"path", PathField(&teacher->path)},
               {"adapter", PathField(&teacher->adapter)},
               {"addresses", AddressesField(&teacher->addresses)},
               {"listen", TextField(&teacher->listen)},
               {"metrics_listen", TextField(&teacher->metrics_listen)},
               {"workers", IntegerField(&teacher->workers, 1, kMostWorkers)}},
              {"name", "path"});
  if (!problem.empty()) return problem;
  if (teacher->path.empty()) return "path is empty";
  if (teacher->addresses.empty()) teacher->addresses = {teacher->listen};
  return "";
}

std::string FormatTeacher(const TeacherModel& teacher) {
  return absl::StrCat("{name: ",
                      Quote(teacher.name),
                      ", path: ",
                      Quote(teacher.path),
                      ", adapter: ",
                      Quote(teacher.adapter),
                      ", addresses: ",
                      FormatList(teacher.addresses, Quote),
                      ", listen: ",
                      Quote(teacher.listen),
                      ", metrics_listen: ",
                      Quote(teacher.metrics_listen),
                      ", workers: ",
                      teacher.workers,
                      "}");
}

}  // namespace dapd
