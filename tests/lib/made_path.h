/* Paths that are made up, in place of initiator/path.c: what is sent on one waits until the test
 * ends it, and is carried out then on an image of the member, if there is one. For tests of io.c
 * and of the stages; nothing here fails.
 */
#ifndef SLUICE_TESTS_MADE_PATH_H
#define SLUICE_TESTS_MADE_PATH_H

#include "initiator/io.h"
#include "initiator/part.h"

struct path {
	enum path_state state;
	struct list sent; /* part.node: what the path has, in order */
	unsigned nr_sent, nr_ended;
	uint8_t *image; /* of the member's bytes, from malloc(); NULL: nothing is carried out */
	unsigned block; /* bytes of a logical block of it */
	void (*look)(const struct part *part); /* at what is sent; NULL: no need */
};

/* Live. image: bytes of it, of zeroes; 0: none. */
void made_path_init(struct path *p, size_t image, unsigned block);
void made_path_fini(struct path *p);

static inline unsigned
made_path_in_flight(const struct path *p)
{
	return p->nr_sent - p->nr_ended;
}

/* What it has had for longest; it has something. */
struct part *made_path_first(const struct path *p);
/* Ends that, and carries it out first if status is 0. False: it has nothing. */
bool made_path_end_one(struct path *p, uint16_t status);
/* All that nr of them have, and what that brings, ends. */
void made_path_end_all(struct path *p, unsigned nr, uint16_t status);

/* Scatters the io's memory from at on, in pieces of up to most bytes, with gaps of up to 3. */
void made_scatter(struct io *io, uint8_t *at, uint32_t most, uint64_t *seed);

#endif
