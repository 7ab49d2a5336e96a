/* The seal of an encrypted volume. See seal.h.
 *
 * Happy path: seal_go() finds that nobody knows whether the key is right and sends a read that
 * belongs to no client; taken() judges what came and has the volume looked at again.
 *
 * A command that is out outlives its volume: it does not look at it any more, and frees the seal
 * when it ends. It is sent once, on one path, so it ends soon, and no late write hits what has
 * become of the disk.
 */
#include "initiator/seal.h"

#include "common/ctl.h"
#include "common/ctl_server.h"
#include "common/digest.h"
#include "common/log.h"
#include "initiator/crypt_key.h"
#include "initiator/initiator.h"
#include "initiator/stage_crypt.h"
#include "initiator/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define AGAIN_NS 1000000000ull

enum { SALT_BYTES = 16, BLOCK_MAX = 4096, RECORD_VERSION = 1 };

struct record { /* in front of zeroes, and a CRC at the end of the block */
	uint8_t salt[SALT_BYTES];
	char magic[16];
	le32 version, key_bytes;
};

static const char magic[16] = "SLUICESEAL";

enum verdict {
	UNKNOWN, /* nobody has read it yet */
	OPENS,
	EMPTY,   /* zeroes: never sealed */
	FOREIGN, /* the key makes nothing of it */
	SPOILT,  /* the key is right, but the rest is not as we write it */
	FAILED,  /* reading or writing did */
};

enum doing { NOTHING, READS, WRITES };

enum order { NO_ORDER, ORDERED, ANSWERED };

struct seal {
	struct volume *vol; /* NULL: gone */
	uint64_t total;     /* bytes that the members have room for; 0: not known */
	unsigned shift;     /* of a logical block */
	uint64_t sealed; /* the total with whose record the key has proved to be right; 0: none */
	uint64_t asked;  /* the total that verdict is about, and the command that is out */
	enum verdict verdict;
	enum doing doing;
	bool wrote;   /* and now reads it back */
	bool stale;   /* what the command that is out brings is of no interest */
	bool pausing; /* until again */
	struct ring_timer again;
	enum order order;
	bool force;
	bool starting; /* seal_order() has not returned */
	struct err answer;
	char why[200];
	struct part part;
	uint8_t block[BLOCK_MAX];
};

/* ---- the record ---- */

static uint32_t
block_bytes(const struct seal *s)
{
	return 1u << s->shift;
}

static uint64_t
tweak(const struct seal *s)
{
	return (s->asked >> s->shift) - 1;
}

static void
mix(uint8_t *block, size_t n)
{
	for (size_t i = SALT_BYTES; i < n; i++)
		block[i] ^= block[i % SALT_BYTES];
}

static bool
fill(struct seal *s)
{
	struct stage *stage = s->vol->stage;
	struct record *rec = (struct record *)s->block;
	size_t n = block_bytes(s);
	le32 crc;

	memset(s->block, 0, n);
	if (getrandom(rec->salt, SALT_BYTES, 0) != SALT_BYTES)
		return false;
	memcpy(rec->magic, magic, sizeof(magic));
	rec->version = le32_put(RECORD_VERSION);
	rec->key_bytes = le32_put((uint32_t)stage->cfg.crypt.key->len);
	crc = le32_put(digest_of(s->block, n - sizeof(crc)));
	memcpy(s->block + n - sizeof(crc), &crc, sizeof(crc));
	mix(s->block, n);
	crypt_unit(stage, true, s->block, n, tweak(s));
	return true;
}

static bool
all_zeroes(const uint8_t *p, size_t n)
{
	return p[0] == 0 && !memcmp(p, p + 1, n - 1);
}

static enum verdict
judge(struct seal *s)
{
	struct stage *stage = s->vol->stage;
	const struct record *rec = (const struct record *)s->block;
	size_t n = block_bytes(s);
	le32 crc;

	if (all_zeroes(s->block, n))
		return EMPTY;
	crypt_unit(stage, false, s->block, n, tweak(s));
	mix(s->block, n);
	if (memcmp(rec->magic, magic, sizeof(magic)) != 0)
		return FOREIGN;
	memcpy(&crc, s->block + n - sizeof(crc), sizeof(crc));
	return le32_get(crc) == digest_of(s->block, n - sizeof(crc)) &&
	                       le32_get(rec->version) == RECORD_VERSION &&
	                       le32_get(rec->key_bytes) == stage->cfg.crypt.key->len
	               ? OPENS
	               : SPOILT;
}

static void
say(struct seal *s)
{
	const char *name = s->vol->name;

	switch (s->verdict) {
	case EMPTY:
		snprintf(s->why, sizeof(s->why), "not sealed yet: sluicectl volume seal %s", name);
		break;
	case FOREIGN:
		snprintf(s->why, sizeof(s->why),
		         "no seal that its key opens: another key, or not sealed yet");
		break;
	case SPOILT:
		snprintf(s->why, sizeof(s->why),
		         "its key is right, but its seal is damaged, or of a later version");
		break;
	default:
		break;
	}
}

/* ---- commands ---- */

static void taken(struct part *p, uint16_t status, uint32_t dw0);

static struct ring *
ring_of(const struct seal *s)
{
	return s->vol->in->reactors[0].ring;
}

/* On the last member: its place there. */
static uint64_t
place(const struct seal *s)
{
	return s->asked / s->vol->nr_members - block_bytes(s);
}

static void
build(struct seal *s, const struct member *m)
{
	uint64_t slba = place(s) >> s->shift;
	struct part *p = &s->part;

	*p = (struct part){
		.to_host = s->doing == READS,
		.len = block_bytes(s),
		.sg = p->inl,
		.nsg = 1,
		.inl = { { s->block, block_bytes(s) } },
		.once = true,
		.done = taken,
	};
	list_init(&p->node);
	p->sqe.opcode = s->doing == READS ? nvme_cmd_read : nvme_cmd_write;
	p->sqe.nsid = le32_put(m->nsid);
	p->sqe.cdw10 = le32_put((uint32_t)slba);
	p->sqe.cdw11 = le32_put((uint32_t)(slba >> 32));
	if (s->doing == WRITES)
		p->sqe.cdw12 = le32_put((uint32_t)NVME_IO_FUA << 16);
}

/* False: no path works now. When one does the volume is looked at, and so are we. */
static bool
ask(struct seal *s, enum doing what)
{
	struct volume *v = s->vol;
	const struct member *m = &v->members[v->nr_members - 1];
	struct path *path = member_path(m, NULL);

	if (!path || path_state(path) != PATH_LIVE) {
		snprintf(s->why, sizeof(s->why), "its seal is behind %.100s, which is not there",
		         m->nqn);
		return false;
	}
	s->doing = what;
	s->stale = false;
	build(s, m);
	path_send(&v->in->reactors[0], path, &s->part);
	return true;
}

static bool
begin(struct seal *s, enum doing what)
{
	s->asked = s->total;
	s->verdict = UNKNOWN;
	s->wrote = false;
	if (s->pausing)
		ring_timer_del(&s->again);
	s->pausing = false;
	if (what == WRITES && !fill(s)) {
		snprintf(s->why, sizeof(s->why), "the system has no random bytes for its seal");
		return false;
	}
	return ask(s, what);
}

static void
again(struct ring_timer *t)
{
	struct seal *s = container_of(t, struct seal, again);

	s->pausing = false;
	s->verdict = UNKNOWN;
	seal_go(s);
}

/* ---- orders ---- */

static void
answer(struct seal *s, int res, const char *text)
{
	s->answer = (struct err){ 0 };
	if (res)
		err_set(&s->answer, res, "%s", text);
	s->order = ANSWERED;
}

/* Whoever waits runs the verb again, which finds the answer. */
static void
tell(struct seal *s)
{
	struct ctl_server *ctl = s->vol->in->ctl;

	if (s->order != ANSWERED || s->starting)
		return;
	if (ctl)
		ctl_server_wake(ctl);
	s->order = NO_ORDER;
}

static void
refuse(struct seal *s)
{
	char text[sizeof(s->answer.text)];

	if (s->verdict == SPOILT)
		snprintf(text, sizeof(text), "%s: --force writes it anew", s->why);
	else
		snprintf(text, sizeof(text),
		         "the last block of the volume holds neither zeroes nor a seal of this "
		         "key. If it belongs to data of another key, or from before \"seal\", then "
		         "--force overwrites it, and what that key wrote reads as garbage");
	answer(s, -EEXIST, text);
}

/* ---- what came ---- */

static void
fail(struct seal *s, const char *what, uint16_t status)
{
	s->verdict = FAILED;
	s->wrote = false;
	if (status == NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR))
		snprintf(s->why, sizeof(s->why), "its seal could not be %s: the path was lost",
		         what);
	else if (status)
		snprintf(s->why, sizeof(s->why), "its seal could not be %s: status %03xh", what,
		         status & NVME_STATUS_MASK);
	else
		snprintf(s->why, sizeof(s->why), "its seal was written and is not there");
	if (s->order == ORDERED)
		answer(s, -EIO, s->why);
	if (s->vol->in->stopping)
		return;
	s->pausing = true;
	ring_timer_set(ring_of(s), &s->again, ring_now(ring_of(s)) + AGAIN_NS);
}

static void
was_read(struct seal *s)
{
	s->verdict = judge(s);
	explicit_bzero(s->block, sizeof(s->block)); /* it may have been a client's */
	say(s);
	if (s->verdict == OPENS) {
		s->sealed = s->asked;
		if (s->order == ORDERED)
			answer(s, 0, "");
	} else if (s->wrote) {
		fail(s, "read", 0);
	} else if (s->order == ORDERED) {
		if (s->verdict != EMPTY && !s->force)
			refuse(s);
		else if (!begin(s, WRITES))
			answer(s, -EIO, s->why);
	}
}

static void
was_written(struct seal *s)
{
	s->wrote = true;
	log_info("volume %s: its seal was written", s->vol->name);
	if (!ask(s, READS))
		fail(s, "read back", NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
}

static void
taken(struct part *p, uint16_t status, uint32_t dw0)
{
	struct seal *s = container_of(p, struct seal, part);
	enum doing did = s->doing;

	(void)dw0;
	if (!s->vol) {
		free(s);
		return;
	}
	s->doing = NOTHING;
	if (s->stale || s->asked != s->total)
		s->verdict = UNKNOWN;
	else if (status)
		fail(s, did == READS ? "read" : "written", status);
	else if (did == READS)
		was_read(s);
	else
		was_written(s);
	if (s->doing != NOTHING)
		return;
	volume_look(s->vol);
	tell(s);
}

/* The volume has been looked at already, and will be when a path comes. */
static void
wait_for_path(struct seal *s)
{
	struct volume *v = s->vol;

	initiator_lock(v->in);
	if (v->state == VOLUME_WAITING)
		snprintf(v->why, sizeof(v->why), "%s", s->why);
	initiator_unlock(v->in);
}

/* ---- for the volume ---- */

struct seal *
seal_new(struct volume *v)
{
	struct seal *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->vol = v;
	ring_timer_init(&s->again, again);
	snprintf(s->why, sizeof(s->why), "its seal is being read");
	return s;
}

void
seal_free(struct seal *s)
{
	if (!s)
		return;
	if (s->pausing)
		ring_timer_del(&s->again);
	s->vol = NULL;
	if (s->doing == NOTHING)
		free(s);
}

void
seal_place(struct seal *s, uint64_t total, unsigned lba_shift)
{
	s->total = total;
	if (s->doing == NOTHING)
		s->shift = lba_shift;
	else if (total && s->shift != lba_shift)
		s->stale = true;
}

void
seal_forget(struct seal *s)
{
	s->total = s->sealed = s->asked = 0;
	s->verdict = UNKNOWN;
	s->stale = true;
	snprintf(s->why, sizeof(s->why), "its seal is being read");
}

uint64_t
seal_capacity(const struct seal *s)
{
	return s->sealed ? MIN(s->sealed, s->total) - SEAL_BYTES : 0;
}

const char *
seal_why(const struct seal *s)
{
	return s->why;
}

bool
seal_is_asking(const struct seal *s)
{
	return s->doing != NOTHING;
}

void
seal_go(struct seal *s)
{
	bool grew = s->sealed && s->total > s->sealed;

	if (s->doing != NOTHING)
		return;
	if (s->order == ORDERED) {
		if (s->total == 0)
			answer(s, -EAGAIN, "its members are not known yet");
		else if (!begin(s, READS))
			answer(s, -EAGAIN, s->why);
		tell(s);
		return;
	}
	if (s->total == 0 || s->pausing || s->vol->in->stopping)
		return;
	if (grew)
		begin(s, WRITES);
	else if (!s->sealed && (s->verdict == UNKNOWN || s->asked != s->total) && !begin(s, READS))
		wait_for_path(s);
}

int
seal_order(struct seal *s, bool force, struct err *err)
{
	int res;

	if (s->order == NO_ORDER) {
		s->order = ORDERED;
		s->force = force;
		s->starting = true;
		seal_go(s);
		s->starting = false;
		if (s->order == ANSWERED) {
			s->order = NO_ORDER;
			return s->answer.code ? err_set(err, s->answer.code, "%s", s->answer.text)
			                      : 0;
		}
	}
	if (s->order == ORDERED)
		return CTL_LATER;
	res = s->answer.code;
	return res ? err_set(err, res, "%s", s->answer.text) : 0;
}

bool
seal_has_order(const struct seal *s)
{
	return s->order != NO_ORDER;
}
