/* A stage: what must touch a volume's bytes between its VMs and its targets, to encrypt or to
 * compress them. A volume has one or none; without, nothing here runs, for the price of one test.
 *
 * Happy path: io.c cuts a part and gives it to stage_out(), which takes staging memory for it, lets
 * ops->out() make there what is sent, and sends it. The part is sent from and received into staging
 * memory from then on, on whatever path and however often: the grant of a read is for
 * staging memory, not for that of the VM (unless the stage lets a part pass: it is the VM's own
 * command then). When the part has ended well, stage_in() lets ops->in() put a
 * read's bytes where the VM wants them; then the staging memory is given back.
 *
 * Staging memory is bounded for each volume and reactor. When it is used up, parts wait in the
 * order in which they came, and nothing fails; they wait for parts of their own volume only, so a
 * target that is dead holds up nobody else's. It is in no core dump. It is not wiped after each
 * part: what a stage leaves in it is not secret (encrypt sees to that) or a VM's plain bytes, as
 * they are elsewhere in this process, and nobody reads what his own part has not written: a grant
 * covers a part's own bytes, and an answer that is short of them is an error. The kernel wipes it
 * when the volume goes.
 *
 * What can fail: one part, in ops->out() or ops->in(), with a status, for good; making the pools (a
 * sentence, when the volume is added).
 */
#ifndef SLUICE_STAGE_H
#define SLUICE_STAGE_H

#include "common/buf.h"
#include "initiator/part.h"

struct crypt_key;
struct reactor;
struct stage;

enum { STAGING_DEFAULT = 8 << 20 }; /* bytes, for each reactor */

enum stage_kind { STAGE_NONE, STAGE_ENCRYPT, STAGE_COMPRESS };

struct stage_config { /* of a volume; of zeroes: it has none */
	enum stage_kind kind;
	uint64_t staging; /* bytes for each reactor; at least one part's are taken */
	struct {
		struct crypt_key *key; /* counted */
		bool discard;          /* discards pass, and tell targets what is not used */
		bool seal;             /* the key must prove to be right, see seal.h */
	} crypt;
	struct {
		int level;
		bool raw; /* to targets that cannot; else parts to them fail */
	} zstd;
};

void stage_config_copy(struct stage_config *to, const struct stage_config *from);
void stage_config_fini(struct stage_config *cfg);
bool stage_config_same(const struct stage_config *a, const struct stage_config *b);

struct staged { /* a part of a volume with a stage; beside the part, for as long */
	struct part *part;
	uint32_t member;
	uint64_t off;     /* bytes of that member, contiguous there; see staged_run() */
	uint32_t len;     /* bytes of the volume that the part is about, with data or without */
	struct iovec *sg; /* VM memory; NULL: a command without data */
	unsigned nsg;
	struct buf buf;   /* staging memory; p is NULL: none is held */
	struct iovec iov; /* what of it is the part's data: all that is sent or received */
	struct buf_wait wait;
	void (*send)(struct part *p);
};

/* All on the part's reactor, r, but the last three. */
struct stage_ops {
	/* Bytes of staging memory that t's part needs; 0: it is sent as it is: Flush and the
	 * like, and a VM's data only where may_pass. */
	uint32_t (*room)(const struct stage *s, const struct staged *t);
	bool may_pass; /* see also staged_pass() */
	/* Makes what is sent. t->buf is there; the part's data is t->len bytes of it, unless this
	 * calls staged_resize(); opcode, to_host and all else of the SQE may be changed. 0, or the
	 * status with which the part ends. */
	uint16_t (*out)(struct stage *s, struct reactor *r, struct staged *t);
	/* The part ended well: puts a read's bytes into VM memory. 0, or the status with which it
	 * ends after all. */
	uint16_t (*in)(struct stage *s, struct reactor *r, struct staged *t, uint32_t dw0);
	/* The part ended with that status: true when it is something else now and is to be sent
	 * again. Optional. */
	bool (*again)(struct stage *s, struct staged *t, uint16_t status);
	/* May a VM send that opcode? Any thread. */
	bool (*allows)(const struct stage *s, uint8_t opcode);
	/* Optional commands that VMs are told of, where the members know those. */
	uint16_t (*oncs)(const struct stage *s, uint16_t oncs);
	void (*free)(struct stage *s); /* after stage_fini() */
};

struct stage {
	const struct stage_ops *ops;
	struct stage_config cfg;
	unsigned nr_pools;
	struct buf_pool **pools; /* of each reactor */
};

/* What cfg says, for parts of at most max_part bytes; *ret is NULL for STAGE_NONE. */
int stage_new(const struct stage_config *cfg, unsigned nr_reactors, uint32_t max_part,
              struct stage **ret, struct err *err);
/* Nothing of the volume is in flight. NULL is fine. */
void stage_free(struct stage *s);
/* For people: "aes-256-xts", "zstd"; of NULL "". */
const char *stage_name(const struct stage *s);

/* For the stages' own constructors. room_max: bytes that any part may need. The stage is of zeroes;
 * stage_fini() also after a failure. */
int stage_init(struct stage *s, const struct stage_ops *ops, unsigned nr_reactors,
               const struct stage_config *cfg, uint32_t room_max, struct err *err);
void stage_fini(struct stage *s);

/* p of p->io, whose volume has a stage, is filled in as for sending: send() follows, now or when
 * there is staging memory, or p->done() with a status. */
void stage_out(struct part *p, struct staged *t, uint32_t member, uint64_t off, uint32_t len,
               void (*send)(struct part *p));
/* The part has ended. True: it is to be sent again. */
bool stage_again(struct staged *t, uint16_t status);
/* The part has ended, and will not be sent again. Returns the status that is its outcome. */
uint16_t stage_in(struct staged *t, uint16_t status, uint32_t dw0);

/* For ops that may_pass: the part is the VM's own command, from and to VM memory. */
void staged_pass(struct staged *t);
/* For ops: the part's data is the first len bytes of its staging memory. */
void staged_resize(struct staged *t, uint32_t len);
/* For ops: where byte at of the part (0..len - 1) is on the volume; *ret_n are as many bytes from
 * there on as lie one behind the other on both. */
uint64_t staged_run(const struct staged *t, uint32_t at, uint32_t *ret_n);

/* Walking VM memory, forward only. */
struct sg_walk {
	const struct iovec *sg;
	size_t in; /* bytes of *sg that are behind us */
};

static inline struct sg_walk
sg_walk_start(const struct staged *t)
{
	return (struct sg_walk){ t->sg, 0 };
}

/* The next n bytes, if they lie in one piece: steps over them. NULL: they do not, use these: */
uint8_t *sg_walk_piece(struct sg_walk *w, size_t n);
void sg_walk_get(struct sg_walk *w, uint8_t *dst, size_t n);
void sg_walk_put(struct sg_walk *w, const uint8_t *src, size_t n);

#endif
