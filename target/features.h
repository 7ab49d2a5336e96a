/* The features: a row for each, and the functions behind those that are more than a number. */
#ifndef SLUICE_FEATURES_H
#define SLUICE_FEATURES_H

#include "target/ctrl.h"

struct feature_request {
	struct cmd *cmd;        /* data, dw0 */
	struct ctrl *c;
	struct ns *ns;          /* of a feature that has one value for each namespace */
	uint32_t nsid;
	uint32_t value;         /* CDW11 */
	uint8_t fid;
	bool later;             /* set() has started something that completes the command */
};

enum { FEATURE_ON_IO = 1, FEATURE_ON_DISCOVERY = 2, FEATURE_ON_BOTH = 3 };

struct feature {                /* all functions run with the lock held */
	uint8_t on;             /* 0: no such feature */
	bool zip;               /* only where the configuration allows compressed transfers */
	bool changeable;
	bool per_ns;
	bool ncc;               /* setting it changes what Identify Namespace says */
	uint16_t set_refused;   /* not 0: every Set ends with it */
	uint16_t data_len;      /* bytes that travel; 0: only dw0 or CDW11 */
	uint32_t initial;       /* default value */
	uint32_t bits;          /* without set(): bits of CDW11 that may be set */
	uint32_t (*default_of)(struct feature_request *rq); /* instead of initial */
	uint16_t (*get)(struct feature_request *rq); /* NULL: ctrl.feat[] */
	uint16_t (*set)(struct feature_request *rq);
};

const struct feature *feature_find(uint8_t fid); /* NULL: no such feature */

#endif
