#include "doctor/measured.h"
#include "moetax/cost/exchange_cost.h"
#include "moetax/cost/machine_costs.h"

namespace moetax::doctor {

Result<MeasuredFacts> read_measured(std::string_view text, const std::string& file) {
  MOETAX_ASSIGN(const MachineCosts machine, parse_machine_costs(text, file));
  return MeasuredFacts{file, machine.nodes, link_roof(machine, machine.nodes) * 1e-3};
}

}  // namespace moetax::doctor
