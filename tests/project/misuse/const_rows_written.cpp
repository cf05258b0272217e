// Rows that somebody lends for reading cannot be written through.
#include "moetax/base/matrix.h"

void clear([[maybe_unused]] moetax::ConstRows lent, [[maybe_unused]] moetax::Rows own) {
#ifdef MOETAX_MISUSE
  moetax::set_element(lent, 0, 0, 0.0f);
#else
  moetax::set_element(own, 0, 0, 0.0f);
#endif
}
