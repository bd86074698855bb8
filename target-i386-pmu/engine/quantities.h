/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of PmuQuantity that events are made of, for the tables of these. */
#ifndef PMU_QUANTITIES_H
#define PMU_QUANTITIES_H

#include "counted.h"

#define B(quantity) PMU_BIT(PMU_ ## quantity)
#define COND        (B(COND_TAKEN) | B(COND_NOT_TAKEN))
#define INDIRECT    (B(JMP_IND) | B(CALL_IND))
#define CALLS       (B(CALL) | B(CALL_IND))
#define NEAR_TAKEN  (B(COND_TAKEN) | B(JMP) | B(JMP_IND) | CALLS | B(RET))
#define BRANCHES    (NEAR_TAKEN | B(COND_NOT_TAKEN) | B(FAR))
#define M_COND      (B(MISP_COND_TAKEN) | B(MISP_COND_NOT_TAKEN))
#define M_INDIRECT  (B(MISP_JMP_IND) | B(MISP_CALL_IND))
#define M_TAKEN     (PMU_MISPREDICTED & ~B(MISP_COND_NOT_TAKEN))

/* Loads that one level has, or all up to it do not have. */
#define FROM_REMOTE (B(LOAD_REMOTE) | B(LOAD_MODIFIED))
#define FROM_L3     (B(LOAD_L3) | FROM_REMOTE)
#define NOT_L2      (FROM_L3 | B(LOAD_DRAM))
#define NOT_L1      (B(LOAD_L2) | NOT_L2)
#define FILLS       (B(FILL_L2) | B(FILL_FAR))

/* The same of stores */
#define S_FROM_L3   (B(STORE_L3) | B(STORE_REMOTE) | B(STORE_MODIFIED))
#define S_NOT_L2    (S_FROM_L3 | B(STORE_DRAM))
#define S_NOT_L1    (B(STORE_L2) | S_NOT_L2)

/* Pages that a first level does not have: of loads, stores and code */
#define LOAD_PAGES  (B(TLB_LOAD_L2) | B(TLB_LOAD_WALK))
#define STORE_PAGES (B(TLB_STORE_L2) | B(TLB_STORE_WALK))
#define CODE_PAGES  (B(TLB_FETCH_L2) | B(TLB_FETCH_WALK))
#define DATA_L2     (B(TLB_LOAD_L2) | B(TLB_STORE_L2))
#define DATA_WALKS  (B(TLB_LOAD_WALK) | B(TLB_STORE_WALK))

#endif
