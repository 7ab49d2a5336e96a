/* What can be used of a discovery log. See ways.h. */
#include "initiator/ways.h"

#include "common/nvme.h"
#include "common/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Copies a field of the log: blanks or NULs behind it do not count. False: it is empty, too long,
 * or not to be printed. */
static bool
take_text(char *ret, size_t size, const char *field, size_t field_size)
{
	size_t n = strnlen(field, field_size);

	while (n > 0 && field[n - 1] == ' ')
		n--;
	for (size_t i = 0; i < n; i++)
		if (field[i] <= 0x20 || field[i] > 0x7e)
			return false;
	if (n == 0 || n >= size)
		return false;
	memcpy(ret, field, n);
	ret[n] = '\0';
	return true;
}

static bool
take_address(struct path_config *way, const struct nvmf_disc_log_entry *e)
{
	int family = e->adrfam == NVMF_ADDR_FAMILY_IP4 ? AF_INET : AF_INET6;
	uint64_t port;
	uint8_t bin[16];

	return (e->adrfam == NVMF_ADDR_FAMILY_IP4 || e->adrfam == NVMF_ADDR_FAMILY_IP6) &&
	       take_text(way->traddr, sizeof(way->traddr), e->traddr, sizeof(e->traddr)) &&
	       inet_pton(family, way->traddr, bin) == 1 &&
	       take_text(way->trsvcid, sizeof(way->trsvcid), e->trsvcid, sizeof(e->trsvcid)) &&
	       units_parse_u64(way->trsvcid, &port) == 0 && port >= 1 && port <= UINT16_MAX;
}

/* Fills way, which has the settings already. NULL, or why not. */
static const char *
take_record(struct path_config *way, const struct nvmf_disc_log_entry *e)
{
	if (e->trtype != NVMF_TRTYPE_TCP)
		return "another transport than TCP";
	if (!take_address(way, e))
		return "no address and port in numbers";
	if ((e->treq & 3) == NVMF_TREQ_REQUIRED || e->tsas.tcp.sectype != NVMF_TCP_SECTYPE_NONE)
		return "TLS is required";
	if (!take_text(way->subnqn, sizeof(way->subnqn), e->subnqn, sizeof(e->subnqn)))
		return "no NQN";
	return NULL;
}

static void
leave_out(struct ways_found *f, const char *why)
{
	if (f->unusable++ == 0)
		snprintf(f->why, sizeof(f->why), "%s", why);
}

int
ways_read(const struct path_config *from, const struct nvmf_discovery_log *log,
          struct ways_found *ret)
{
	uint64_t n = le64toh(log->numrec);

	memset(ret, 0, sizeof(*ret));
	ret->to = calloc(n + 1, sizeof(*ret->to));
	if (!ret->to)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		const struct nvmf_disc_log_entry *e = &log->entries[i];
		struct path_config way = *from;
		const char *why = take_record(&way, e);

		way.discovery = e->subtype == NVME_NQN_DISC;
		if (e->subtype == NVME_NQN_CURR)
			continue; /* where the log comes from */
		if (e->subtype != NVME_NQN_NVME && e->subtype != NVME_NQN_DISC)
			leave_out(ret, "an unknown kind of record");
		else if (why)
			leave_out(ret, why);
		else if (e->subtype == NVME_NQN_NVME)
			ret->to[ret->nr++] = way;
		else if (ret->nr_referrals < REFERRALS_MAX)
			ret->referrals[ret->nr_referrals++] = way;
		else
			leave_out(ret, "too many referrals");
	}
	return 0;
}
