/* Whether a volume is ready: what its paths learnt in Identify, held against its configuration.
 *
 * Happy path: a path tells that it changed; volume_look() asks all paths of all members; when each
 * namespace is known, the geometry fits, and the key of a volume with a seal has proved to be
 * right, the volume becomes READY, once and for all. Afterwards a look finds a larger capacity, or
 * nothing new.
 *
 * What can fail: members that do not fit together (FAILED until they do); a member that has become
 * another disk (FAILED until it is back: a write there would destroy what is not ours). A member
 * that shrank or went away changes nothing but the log: the target answers for what is not there.
 */
#include "initiator/volume.h"

#include "common/log.h"
#include "common/units.h"
#include "initiator/front.h"
#include "initiator/initiator.h"
#include "initiator/seal.h"

#include <errno.h>
#include <stdio.h>

enum { LBA_SHIFT_MIN = 9, LBA_SHIFT_MAX = 12 }; /* 512 and 4096: what clients can be told */

struct look {
	bool known;        /* of all members */
	uint8_t lba_shift; /* 0: not seen yet */
	uint32_t mdts;     /* of all paths */
	uint64_t smallest; /* member, bytes */
	bool vwc;
	uint16_t oncs; /* of all paths */
	char wrong[200]; /* why it cannot be; "": it can */
	char waits[200]; /* for what */
};

static const struct path_ns *
find_ns(const struct path_info *info, uint32_t nsid)
{
	for (unsigned i = 0; i < info->nr_ns; i++)
		if (info->ns[i].nsid == nsid)
			return &info->ns[i];
	return NULL;
}

static bool
is_set(const uint8_t id[16])
{
	static const uint8_t none[16];

	return memcmp(id, none, 16) != 0;
}

/* Both tell who they are, and differ. */
static bool
differ(const uint8_t a[16], const uint8_t b[16])
{
	return is_set(a) && is_set(b) && memcmp(a, b, 16) != 0;
}

/* What one path says of the namespace. */
static void
look_at_ns(struct look *l, struct member *m, struct path *p, const struct path_ns *ns)
{
	uint64_t bytes = ns->blocks << ns->lba_shift;

	if (differ(m->uuid, ns->uuid) || differ(m->nguid, ns->nguid)) {
		snprintf(l->wrong, sizeof(l->wrong), "namespace %u of %.100s is another disk now",
			 m->nsid, path_name(p));
		return;
	}
	memcpy(m->uuid, ns->uuid, sizeof(m->uuid));
	memcpy(m->nguid, ns->nguid, sizeof(m->nguid));
	if (l->lba_shift && l->lba_shift != ns->lba_shift)
		snprintf(l->wrong, sizeof(l->wrong),
			 "namespace %u of %.100s has blocks of %u bytes, others of %u", m->nsid,
			 m->nqn, 1u << ns->lba_shift, 1u << l->lba_shift);
	l->lba_shift = ns->lba_shift;
	m->bytes = m->bytes ? MIN(m->bytes, bytes) : bytes;
}

/* A volume that must be compressed needs one path that can. False: nobody knows yet. */
static bool
zip_suits(struct look *l, const struct volume *v, const struct member *m, bool asked)
{
	const struct stage_config *cfg = v->stage ? &v->stage->cfg : NULL;

	if (!cfg || cfg->kind != STAGE_COMPRESS || cfg->zstd.raw || m->zips)
		return true;
	if (asked)
		snprintf(l->wrong, sizeof(l->wrong),
			 "%.100s has no compression: \"otherwise\": \"raw\" would do without",
			 m->nqn);
	return asked;
}

/* Asks all paths of a member. */
static void
look_at_member(struct look *l, const struct volume *v, struct member *m)
{
	bool heard = false, seen = false, asked = true, zips = false;
	struct path *some = NULL;
	char why[160];

	m->bytes = 0;
	if (!v->geo.nr) { /* nobody has used it yet: it may be any disk, but one */
		memset(m->uuid, 0, sizeof(m->uuid));
		memset(m->nguid, 0, sizeof(m->nguid));
	}
	for (unsigned i = 0; i < m->nr_paths; i++) {
		struct path *p = m->paths[i];
		const struct path_info *info = p ? path_info(p) : NULL;
		const struct path_ns *ns = info ? find_ns(info, m->nsid) : NULL;

		some = some ? some : p;
		if (info) {
			heard = true;
			l->mdts = MIN(l->mdts, info->mdts ? info->mdts : UINT32_MAX);
			l->vwc |= info->vwc;
			l->oncs &= info->oncs;
			asked &= info->zip_asked;
			zips |= info->zip_max > 0;
		}
		if (ns) {
			seen = true;
			look_at_ns(l, m, p, ns);
		}
		if (info)
			path_info_put(info);
	}
	if (heard && !seen && !m->missing)
		log_error("volume %s: %s has no namespace %u; commands to it will fail", v->name,
			  m->nqn, m->nsid);
	m->missing = heard && !seen;
	m->zips = zips;
	l->smallest = MIN(l->smallest, m->bytes);
	if (seen && zip_suits(l, v, m, asked))
		return;
	l->known = false;
	if (seen)
		snprintf(l->waits, sizeof(l->waits), "%.100s is asked to compress", m->nqn);
	else if (heard)
		snprintf(l->waits, sizeof(l->waits), "%.120s has no namespace %u", m->nqn, m->nsid);
	else if (!some)
		snprintf(l->waits, sizeof(l->waits), "%.80s: no discovery controller knows a way to it",
			 m->nqn);
	else if (*path_why(some, why, sizeof(why)))
		snprintf(l->waits, sizeof(l->waits), "%.80s: %.100s", m->nqn, why);
	else
		snprintf(l->waits, sizeof(l->waits), "%.80s is being connected", m->nqn);
}

/* What can only be told when all members are known. */
static void
judge(struct look *l, const struct volume *v)
{
	uint32_t lba = 1u << l->lba_shift;

	if (l->wrong[0])
		return;
	if (l->lba_shift < LBA_SHIFT_MIN || l->lba_shift > LBA_SHIFT_MAX)
		snprintf(l->wrong, sizeof(l->wrong),
			 "its members have blocks of %u bytes, 512 to 4096 are possible", lba);
	else if (v->geo.nr && v->lba_shift != l->lba_shift)
		snprintf(l->wrong, sizeof(l->wrong),
			 "its members were formatted to blocks of %u bytes", lba);
	else if (v->nr_members > 1 && l->smallest < v->block)
		snprintf(l->wrong, sizeof(l->wrong),
			 "its smallest member has %llu bytes, less than a stripe block",
			 (unsigned long long)l->smallest);
	else if (l->smallest == 0)
		snprintf(l->wrong, sizeof(l->wrong), "its member has no blocks");
	else if (v->seal && v->nr_members == 1 && l->smallest <= SEAL_BYTES)
		snprintf(l->wrong, sizeof(l->wrong), "its member has no room for more than its seal");
	else if (l->mdts < lba)
		snprintf(l->wrong, sizeof(l->wrong),
			 "a target takes no more than %u bytes at a time", l->mdts);
}

/* Sets for ever what the I/O path takes for immutable. */
static void
fix_geometry(struct volume *v, const struct look *l)
{
	uint32_t max_part = MIN(v->max_part, l->mdts) >> l->lba_shift << l->lba_shift;

	if (v->geo.nr)
		return;
	v->lba_shift = l->lba_shift;
	split_geometry(&v->geo, v->nr_members, v->block, max_part);
	v->max_transfer = VOLUME_TRANSFER_MAX;
}

void
volume_describe(const struct volume *v, char *buf, size_t size)
{
	struct units_text bytes, block, part;

	if (v->state != VOLUME_READY)
		snprintf(buf, size, "%s: %s", volume_state_name(v->state), v->why);
	else if (v->nr_members == 1)
		snprintf(buf, size, "%s, %u-byte blocks, 1 member, parts of up to %s",
			 units_show_size(&bytes, v->bytes), 1u << v->lba_shift,
			 units_size(&part, v->geo.max_part));
	else
		snprintf(buf, size,
			 "%s, %u-byte blocks, %u members in stripes of %s, parts of up to %s",
			 units_show_size(&bytes, v->bytes), 1u << v->lba_shift, v->nr_members,
			 units_size(&block, v->block), units_size(&part, v->geo.max_part));
}

static void
become_ready(struct volume *v, const struct look *l, uint64_t bytes)
{
	char text[200];

	fix_geometry(v, l);
	v->vwc = l->vwc;
	v->oncs = v->stage ? v->stage->ops->oncs(v->stage, l->oncs) : l->oncs;
	v->state = VOLUME_READY;
	v->why[0] = '\0';
	v->shrunk_to = 0;
	v->bytes = bytes; /* last: it lets commands in */
	volume_describe(v, text, sizeof(text));
	log_info("volume %s: ready, %s", v->name, text);
}

/* Returns whether clients should hear of it. */
static bool
change_capacity(struct volume *v, uint64_t bytes)
{
	struct units_text was, is;

	units_show_size(&was, v->bytes);
	units_show_size(&is, bytes);
	if (bytes > v->bytes) {
		log_info("volume %s: grew from %s to %s", v->name, was.s, is.s);
		v->bytes = bytes;
		v->shrunk_to = 0;
		return true;
	}
	if (bytes < v->bytes && bytes != v->shrunk_to) {
		log_error("volume %s: its members have room for %s only, it stays at %s; commands "
			  "behind that will fail",
			  v->name, is.s, was.s);
		v->shrunk_to = bytes;
	}
	return false;
}

static bool
fail(struct volume *v, const char *why)
{
	bool news = v->state != VOLUME_FAILED || strcmp(v->why, why);

	v->state = VOLUME_FAILED;
	v->bytes = 0;
	if (v->seal)
		seal_forget(v->seal);
	snprintf(v->why, sizeof(v->why), "%s", why);
	if (news)
		log_error("volume %s: not usable: %s", v->name, why);
	return news;
}

/* Its key has not proved to be right: no command is let through. Returns whether that is news. */
static bool
wait_for_seal(struct volume *v)
{
	const char *why = seal_why(v->seal);
	bool news = v->state != VOLUME_WAITING || strcmp(v->why, why) != 0;

	v->state = VOLUME_WAITING;
	v->bytes = 0;
	snprintf(v->why, sizeof(v->why), "%s", why);
	if (news)
		log_info("volume %s: waits: %s", v->name, why);
	return news;
}

static bool
look(struct volume *v)
{
	struct look l = {
		.known = true, .mdts = UINT32_MAX, .smallest = UINT64_MAX, .oncs = UINT16_MAX};
	struct geometry g;
	uint64_t bytes;

	if (v->seal)
		seal_place(v->seal, 0, 0);
	for (unsigned i = 0; i < v->nr_members; i++)
		look_at_member(&l, v, &v->members[i]);
	if (l.known)
		judge(&l, v);
	if (l.wrong[0])
		return fail(v, l.wrong);
	if (!l.known) {
		if (v->state == VOLUME_WAITING)
			snprintf(v->why, sizeof(v->why), "%s", l.waits);
		return false;
	}
	split_geometry(&g, v->nr_members, v->block, VOLUME_PART_MIN);
	bytes = split_capacity(&g, l.smallest);
	if (v->seal) {
		seal_place(v->seal, bytes, l.lba_shift);
		bytes = seal_capacity(v->seal);
		if (bytes == 0)
			return wait_for_seal(v);
	}
	if (v->state == VOLUME_READY) {
		if (l.mdts < v->geo.max_part)
			log_error("volume %s: a path takes no more than %u bytes at a time, parts "
				  "have up to %u; set max_part and start again",
				  v->name, l.mdts, v->geo.max_part);
		return change_capacity(v, bytes);
	}
	become_ready(v, &l, bytes);
	return true;
}

/* Those who watch the control socket. */
static void
tell(struct volume *v)
{
	struct conf_writer w;
	char what[220];

	volume_describe(v, what, sizeof(what));
	ctl_event_begin(&w, "volume");
	conf_put_str(&w, "volume", v->name);
	conf_put_str(&w, "state", volume_state_name(v->state));
	conf_put_u64(&w, "size", v->bytes);
	conf_put_fmt(&w, "text", "%s: %s", v->name, what);
	ctl_events_take(&v->in->events, NULL, ctl_event_end(&w));
}

void
volume_look(struct volume *v)
{
	struct initiator *in = v->in;
	bool news;

	initiator_lock(in);
	news = look(v);
	initiator_unlock(in);
	if (news) {
		front_volume_changed(in, v);
		tell(v);
	}
	if (v->seal)
		seal_go(v->seal);
}
