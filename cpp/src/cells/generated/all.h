// Generated from plugin/cells by `make cells`. Do not edit.
// clang-format off
#pragma once
#include "cells/generated/gru.h"
#include "cells/generated/janet.h"
#include "cells/generated/lstm.h"
#include "cells/generated/lstm_decay.h"
#include "cells/generated/lstm_fast.h"
#include "cells/generated/lstm_refine.h"
#include "cells/generated/lstm_refine_tied.h"
#include "cells/generated/lstm_softsign.h"
#include "cells/generated/min_gru.h"
#include "cells/generated/plstm.h"
#include "cells/generated/plstm_fast.h"
#include "cells/generated/plstm_uncoupled.h"
#include "cells/generated/slstm.h"

// X(cell) for every cell, in the order of their names.
#define TSM_FOR_EACH_CELL(X) X(gru) X(janet) X(lstm) X(lstm_decay) X(lstm_fast) X(lstm_refine) X(lstm_refine_tied) X(lstm_softsign) X(min_gru) X(plstm) X(plstm_fast) X(plstm_uncoupled) X(slstm)
