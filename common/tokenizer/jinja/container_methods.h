// The methods of dicts, lists, tuples and numbers, but for those that would
// change a value.
#pragma once

#include "common/tokenizer/jinja/arguments.h"

namespace dapd::jinja {

const Builtins& DictMethods();
// These are the methods of tuples and ranges, too.
const Builtins& ListMethods();
const Builtins& NumberMethods();

}  // namespace dapd::jinja
