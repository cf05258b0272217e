// A Result that is not looked at is an error lost, also without a value.
#include "moetax/base/result.h"

moetax::Result<void> write_report();

bool report() {
#ifdef MOETAX_MISUSE
  write_report();
  return true;
#else
  return write_report().has_value();
#endif
}
