// Defines the methods of Python's str. Methods that make bytes or read a table
// (encode, maketrans, translate) are refused when they are called. Positions
// count code points.
#pragma once

#include "common/tokenizer/jinja/arguments.h"

namespace dapd::jinja {

const Builtins& StringMethods();

}  // namespace dapd::jinja
