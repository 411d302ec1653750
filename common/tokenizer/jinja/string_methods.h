// The methods of Python's str, but for those that make bytes or read a table
// (encode, maketrans, translate), whose call is refused. They count by code
// points.
#pragma once

#include "common/tokenizer/jinja/arguments.h"

namespace dapd::jinja {

const Builtins& StringMethods();

}  // namespace dapd::jinja
