// Defines the methods of dicts, lists, tuples and numbers, except for methods
// that change a value.
#pragma once

#include "common/tokenizer/jinja/arguments.h"

namespace dapd::jinja {

const Builtins& DictMethods();
// Tuples and ranges have these methods, too.
const Builtins& ListMethods();
const Builtins& NumberMethods();

}  // namespace dapd::jinja
