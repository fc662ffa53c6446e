// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "output/text/text_table.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

// What a report says of a device before its tables: the name, how much it had and when, and what
// NVML and the allocators said.
class DeviceHeadline {
 public:
  DeviceHeadline(const query::Report& report,
                 const tables::Recording& recording,
                 const query::ReportQuery& query,
                 TextLines* out)
      : report_(report), recording_(recording), query_(query), out_(*out) {}

  void Add(const query::DeviceReport& device);
  bool HasAllocated(const query::DeviceReport& device) const {
    return query_.SelectsWholeDevices() && device.reserved_bytes > 0 && device.allocated_peak;
  }
  void AddUnbacked(const query::DeviceReport& device);
  // Where no device has anything.
  void AddAbsence();

 private:
  void AddSelected(const query::DeviceReport& device, const Unit& unit);
  void AddAllocated(const query::DeviceReport& device, const Unit& unit);
  std::string PeakText(const query::PeakFigure& peak, const Unit& unit) const;
  std::string Asked() const;
  // As --at takes it: the same state again.
  std::string Seconds(int64_t time_ns) const {
    return ExactSeconds(time_ns - recording_.tables().session.begin_ns) + " s";
  }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  TextLines& out_;
};

}  // namespace vramscope::output
