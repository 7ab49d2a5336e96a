/* An entry of "ublk": a volume, and how many queues of which depth its device has. See
 * front_ublk.h.
 *
 * The short form is the volume's name alone. What can fail: what a human wrote, told with its
 * place.
 */
#include "common/conf.h"
#include "initiator/front_ublk.h"

#include <errno.h>
#include <stdio.h>

static int
read_volume(const struct conf_node *n, struct ublk_config *ret, struct err *err)
{
	const char *text = "";
	int res = conf_as_str(n, sizeof(ret->volume) - 1, &text, err);

	if (res < 0)
		return res;
	if (!text[0])
		return conf_err(n, err, -EINVAL, "must not be empty");
	snprintf(ret->volume, sizeof(ret->volume), "%s", text);
	return 0;
}

int
config_read_ublk(const struct conf_node *n, struct ublk_config *ret, struct err *err)
{
	static const char *const known[] = { "volume", "queues", "depth", NULL };
	const struct conf_node *volume;
	int res;

	*ret = (struct ublk_config){ .depth = UBLK_TAGS_DEFAULT };
	if (conf_type(n) == CONF_STRING)
		return read_volume(n, ret, err);
	res = conf_as_object(n, err);
	if (!res)
		res = conf_check_keys(n, known, err);
	if (res)
		return res;
	volume = conf_need(n, "volume", err);
	res = volume ? read_volume(volume, ret, err) : -EINVAL;
	if (!res)
		res = conf_get_u32(n, "queues", 1, UBLK_QUEUES_MAX, &ret->queues, err);
	if (res >= 0)
		res = conf_get_u32(n, "depth", 1, UBLK_TAGS_MAX, &ret->depth, err);
	return res < 0 ? res : 0;
}
