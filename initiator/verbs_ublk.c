/* Control verbs of the ublk front: adding and deleting a device, and the list of all.
 *
 * The driver takes its time, so the first two answer when it has: the front remembers what was
 * asked, wakes the server, and the verb finds the answer. What can fail: what front_ublk.c
 * refuses.
 */
#include "initiator/verbs_table.h"

#include "initiator/front_ublk.h"

#include <errno.h>

int
verb_ublk_add(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	struct ublk_config cfg;
	char path[32] = "";
	int ret;

	ret = in->stopping ? err_set(err, -ESHUTDOWN, "the initiator stops")
	                   : config_read_ublk(params, &cfg, err);
	if (!ret)
		ret = front_ublk_add(in, &cfg, path, err);
	if (!ret)
		conf_put_str(w, NULL, path);
	return ret;
}

int
verb_ublk_del(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	const char *name = "";
	bool force = false;
	int ret;

	(void)w;
	ret = conf_get_str(params, "name", 63, &name, err);
	if (ret >= 0)
		ret = conf_get_bool(params, "force", &force, err);
	return ret < 0 ? ret : front_ublk_end(ctx, name, force, err);
}

int
verb_ublk_list(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	(void)params;
	(void)err;
	front_ublk_list(ctx, w);
	return 0;
}
