// A machine.json from anywhere gives costs that can be predicted with, or an error of one line.
#include <cmath>

#include "fuzz.h"
#include "moetax/cost/machine_costs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  const auto machine = moetax::parse_machine_costs(moetax::fuzz::as_text(data, size), "machine.json");
  if (!machine) {
    require(machine.error().code == moetax::ErrorCode::kBadInput);
    moetax::fuzz::require_good_message(machine.error(), "machine.json: ");
    return 0;
  }
  require(machine->nodes >= 1 && machine->ranks >= machine->nodes && machine->cores >= 1);
  for (const moetax::MeasuredLink& link : machine->links) {
    double before = 0;
    for (double bytes = 0; bytes < 1e12; bytes = 4 * bytes + 1) {
      const double us = link.cost.time_us(bytes);
      require(std::isfinite(us) && us >= before);
      before = us;
    }
  }
  return 0;
}
