/* The whole served model: subsystems, ports, limits; one lock for everything that is slow-path.
 *
 * t->lock guards every struct subsys, ns (but its handles), port, ctrl and the lists between them.
 * Admin and Fabrics commands, control verbs and reload hold it; the I/O path never does. Nothing
 * blocks while holding it, and no callback is run under it but those that say so.
 */
#ifndef SLUICE_TARGET_H
#define SLUICE_TARGET_H

#include "common/ctl_events.h"
#include "common/err.h"
#include "target/ns.h"
#include "target/reactor.h"

#include "common/nvme.h"

#define DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"

struct limits {                 /* each configurable under "sluice", each bounded */
	unsigned reactors;      /* threads; 1..REACTORS_MAX */
	unsigned connections;   /* TCP connections at a time */
	unsigned queues;        /* I/O queues of a controller, 1..128 */
	unsigned depth;         /* entries of an I/O queue, 2..1024 */
	unsigned controllers;   /* live controllers of a subsystem */
	uint32_t mdts;          /* bytes, power of two, 8 KiB (MDTS 0 is no limit)..2 MiB */
	/* bytes of in-capsule data on I/O queues, multiple of 16, 0..64 KiB */
	uint32_t in_capsule;
	size_t buffers;         /* bytes of buffer pool of the whole target */
	unsigned poll_us;       /* spin before sleeping */
	unsigned handshake_ms;  /* from accept to a finished Connect */
	/* from a PDU's first byte to its last header byte; also data of R2T */
	unsigned header_ms;
	enum chan_zc zero_copy;
	bool compress;          /* hosts may turn compressed transfers on */
	bool pin;               /* pin reactor n to the n-th cpu of the process */
};

struct host {                   /* a host name in an access list */
	struct list node;
	char nqn[NVME_NQN_MAX + 1];
};

struct host_limit {
	struct list node;       /* subsys.host_limits */
	char nqn[NVME_NQN_MAX + 1];
	struct limit *limit;
};

struct subsys {
	struct list node;       /* target.subsystems */
	struct target *t;
	char nqn[NVME_NQN_MAX + 1];
	char serial[21], model[41]; /* NUL terminated, unpadded */
	bool allow_any_host;
	struct list hosts;      /* struct host */
	struct list host_limits; /* of hosts that have limits, or had; lives as long as we do */
	_Atomic bool limited;   /* a namespace or a host has limits; read on the hot path */
	char *ns_dir;           /* Namespace Management makes files there; NULL: not offered */
	uint64_t ns_dir_limit;  /* bytes that managed namespaces may take together */
	bool discovery;         /* the discovery subsystem: no namespaces */
	uint16_t cntlid_min, cntlid_max; /* range that dynamic controller ids are taken from */

	struct list ctrls;      /* ctrl.node */
	unsigned nr_ctrls;
	uint16_t next_cntlid;
	bool gone;              /* out of target.subsystems; freed when refs is 0 */
	unsigned refs;          /* controllers, namespaces, and one for being listed */
	struct ns *_Atomic ns[NS_MAX]; /* [nsid - 1]; written under the lock, read anywhere */
};

struct port {
	struct list node;       /* target.ports */
	struct target *t;
	uint16_t id;            /* PORTID */
	char traddr[64];        /* as configured: address literal, no brackets */
	char trsvcid[8];        /* as configured; "0": any */
	uint16_t bound_port;    /* what we listen on, host order */
	bool ipv6;
	bool implicit_discovery; /* the extra listener on 8009 */
	bool gone;              /* removed: serves nothing; freed when refs is 0 */
	/* connections and the listener (port_get), and one for being listed */
	_Atomic unsigned refs;
	struct list links;      /* struct port_link: subsystems served here */
	struct list referrals;  /* struct referral */
	struct listener *listener;
};

struct port_link {
	struct list node;
	struct subsys *subsys;
};

struct referral {
	struct list node;
	char name[64];
	uint16_t portid;
	bool ipv6;
	char traddr[64], trsvcid[8];
};

struct target {
	pthread_mutex_t lock;
	struct limits limits;   /* fixed after start but for poll_us */
	struct list subsystems, ports;
	struct subsys *discovery;
	uint64_t genctr;        /* of the discovery log */
	struct crew crew;
	struct reactor *reactors;
	unsigned nr_reactors;
	_Atomic unsigned nr_conns;
	unsigned next_conn_id;
	uint64_t started_ms;    /* CLOCK_MONOTONIC, for power-on hours */
	bool discovery_explicit; /* a discovery port was asked for, not just tried */
	uint16_t discovery_port; /* of the implicit discovery listeners; 0: none */
	char *config_path;      /* NULL: made from the command line */
	char *control_path;
	struct ctl_server *ctl; /* NULL: no control socket */
	struct ctl_events events; /* for those who watch it */
};

static inline void
target_lock(struct target *t)
{
	pthread_mutex_lock(&t->lock);
}

static inline void
target_unlock(struct target *t)
{
	pthread_mutex_unlock(&t->lock);
}

#endif
