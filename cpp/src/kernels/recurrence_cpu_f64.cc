// The fused recurrence of every cell for double elements.
#include "cells/all.h"
#include "kernels/recurrence_cpu.h"

namespace tsm {
#define TSM_INSTANTIATE(cell) template class RecurrenceCpu<cells::cell, double>;
TSM_FOR_EACH_CELL(TSM_INSTANTIATE)
}  // namespace tsm
