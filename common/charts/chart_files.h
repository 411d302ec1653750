// What pages with charts are made of, as text: the files of this folder.
// chart_files.cc is made of them by embed_files.cmake.
#pragma once

namespace dapd {

extern const char kStyleCss[];
// To stand in one scope in this order.
extern const char kDomJs[];       // elements
extern const char kScaleJs[];     // scales, ticks, numbers
extern const char kChartJs[];     // charts over steps
extern const char kControlsJs[];  // what changes all charts of a page

}  // namespace dapd
