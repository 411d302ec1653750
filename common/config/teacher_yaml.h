// A teacher of `teachers` as YAML and back. Fields (docs/teachers.md says what
// each means; * required):
//
//   name*, path*, adapter
//   addresses                   a text or a list; default: [listen]
//   listen                      default: 127.0.0.1:7011 for the first teacher,
//                               :7012 for the second, ...
//   metrics_listen              default: 127.0.0.1:9111, :9112, ...
//   workers: 1
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Reads the teacher at place `index` of the list, with the defaults of that
// place. Returns an empty text if it was read, otherwise what is wrong with it.
std::string ReadTeacher(const YAML::Node& node,
                        size_t index,
                        TeacherModel* teacher);

// Writes the teacher in one line. ReadTeacher gives the same teacher again, at
// any place.
std::string FormatTeacher(const TeacherModel& teacher);

}  // namespace dapd
