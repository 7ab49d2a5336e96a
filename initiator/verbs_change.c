/* Control verbs that change what there is. The file is not touched: a reload makes everything as it
 * says again.
 *
 * Happy path: the parameters are read as the same entry of a configuration is; one function does
 * the work. What can fail: what those functions refuse.
 */
#include "initiator/verbs_table.h"

#include "initiator/config.h"
#include "initiator/seal.h"

#include <errno.h>

static int
running(const struct initiator *in, struct err *err)
{
	return in->stopping ? err_set(err, -ESHUTDOWN, "the initiator stops") : 0;
}

int
verb_volume_add(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct volume_config cfg = { 0 };
	struct initiator *in = ctx;
	struct volume *v;
	char text[240];
	int ret;

	ret = running(in, err);
	if (!ret)
		ret = config_read_volume(params, NULL, &cfg, err);
	if (!ret)
		ret = volume_add(in, &cfg, &v, err);
	volume_config_fini(&cfg);
	if (ret)
		return ret;
	volume_describe(v, text, sizeof(text));
	conf_begin_object(w, NULL);
	conf_put_str(w, "name", v->name);
	conf_put_str(w, "volume", text);
	conf_end(w);
	return 0;
}

static int
name_of(const struct conf_node *params, const char **ret_name, struct err *err)
{
	int ret = conf_get_str(params, "name", 63, ret_name, err);

	return ret < 0 ? ret : 0;
}

int
verb_volume_remove(void *ctx, const struct conf_node *params, struct conf_writer *w,
		   struct err *err)
{
	const char *name = "";
	int ret;

	(void)w;
	ret = running(ctx, err);
	if (!ret)
		ret = name_of(params, &name, err);
	return ret ? ret : volume_remove(ctx, name, err);
}

int
verb_volume_seal(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	const struct volume *v;
	const char *name = "";
	bool force = false;
	int ret;

	(void)w;
	ret = running(ctx, err);
	if (!ret)
		ret = name_of(params, &name, err);
	if (!ret)
		ret = conf_get_bool(params, "force", &force, err);
	if (ret < 0)
		return ret;
	v = volume_find(ctx, name);
	if (!v)
		return err_set(err, -ENOENT, "there is no volume '%s'", name);
	if (!v->seal)
		return err_set(err, -EINVAL, "volume '%s' has no stage with \"seal\": true", name);
	if (v->state == VOLUME_READY && !seal_has_order(v->seal))
		return 0; /* by this key */
	ret = seal_order(v->seal, force, err);
	return ret < 0 ? err_prefix(err, ret, "volume '%s'", name) : ret;
}

int
verb_vm_add(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct vm_config cfg = { 0 };
	int ret;

	(void)w;
	ret = running(ctx, err);
	if (!ret)
		ret = config_read_vm(params, &cfg, err);
	if (!ret)
		ret = vm_add(ctx, &cfg, err);
	vm_config_fini(&cfg);
	return ret;
}

int
verb_vm_remove(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	const char *name = "";
	int ret;

	(void)w;
	ret = running(ctx, err);
	if (!ret)
		ret = name_of(params, &name, err);
	return ret ? ret : vm_remove(ctx, name, err);
}
